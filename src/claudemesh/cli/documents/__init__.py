"""What every command prints with `--json`, by its words. The schemas in `docs/reference/json` are made from here.

Nothing that runs reads this: it is for the documentation, and for the tests, which hold whatever a command really
prints against it. So a document may be added to, but what is listed here stays.

To add a command: one line in the module of its noun, `"claudemesh noun verb": one(Document)`; `lines(…)` of what
follows something, `silent("why")` of what speaks another language on standard output. Then `make docs`.
"""

from claudemesh.cli.documents import daemon, ledger, mesh, messages, pipeline, program, statehub, surfaces
from claudemesh.cli.documents.printed import Printed, Problem, choose, lines, one, silent

__all__ = ["PRINTED", "Printed", "Problem", "choose", "lines", "one", "silent"]

PRINTED: dict[str, Printed] = {
    **program.PRINTED,
    **daemon.PRINTED,
    **mesh.PRINTED,
    **messages.PRINTED,
    **ledger.PRINTED,
    **pipeline.PRINTED,
    **statehub.PRINTED,
    **surfaces.PRINTED,
}
