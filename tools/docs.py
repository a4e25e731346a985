"""Write the pages of `docs/` that are made from the code, or check that they are current (`--check`)."""

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # so that it runs by path as well as with -m

from claudemesh.cli.host import blocks  # noqa: E402  after the path is set
from claudemesh.kernel import outbox, write_errors  # noqa: E402, F401  after the path is set; the errors for their classes
from claudemesh.kernel.admission import Match  # noqa: E402  as above
from claudemesh.kernel.errors import MeshError  # noqa: E402  as above
from tools import cli_page, doctor_page, json_page, mcp_page, observed_page, pages, relay_page, vectors  # noqa: E402  as above
from tools.made import MADE  # noqa: E402  as above


def render_all() -> dict[str, str]:
    """Return the text of every generated file by its path below docs/."""
    files = {f"vectors/{profile}.json": text for profile, text in vectors.render_all().items()}
    files |= {f"reference/json/{name}": text for name, text in json_page.schemas().items()}
    files["reference/json.md"] = "\n".join(json_page.json_page())
    files["reference/cli.md"] = "\n".join(cli_page.cli_page())
    files["reference/errors.md"] = "\n".join(_errors()) + "\n"
    files["reference/events.md"] = "\n".join(observed_page.events_page()) + "\n"
    files["reference/metrics.md"] = "\n".join(observed_page.metrics_page()) + "\n"
    files["reference/mcp.md"] = "\n".join(mcp_page.mcp_page())
    files["reference/protocol.md"] = "\n".join(pages.protocol_page()) + "\n"
    files["reference/relay-routes.md"] = "\n".join(relay_page.relay_routes_page())
    files["reference/settings.md"] = "\n".join(pages.settings_page()) + "\n"
    files["reference/http.md"] = "\n".join(pages.http_page()) + "\n"
    files["how-to/diagnose.md"] = "\n".join(doctor_page.doctor_page())
    files["how-to/point-agents-at-the-relay.md"] = "\n".join(_agents()) + "\n"
    files["reference/state-machines.md"] = "\n".join(_state_machines()) + "\n"
    return files


def _agents() -> Iterator[str]:
    yield from (
        MADE,
        "",
        "# Point agents at the relay",
        "",
        "Agents read `AGENTS.md` (or what their host calls it) when they begin. This block is for a project whose",
        "agents write to a State Hub through the [relay](outage.md) and reach each other over the mesh. In the",
        "project's folder `claudemesh install --scope project --agents-md` writes it there, between its marks;",
        "`claudemesh uninstall --scope project` takes it out; `claudemesh install --print agents-md` prints it.",
        "",
        "```markdown",
        blocks.read_block(),
        "```",
        "",
        "The tools are described in the [reference](../reference/mcp.md).",
    )


def _errors() -> Iterator[str]:
    yield from (
        MADE,
        "",
        "# Errors",
        "",
        "Every error has a `code` that never changes, on the wire as `application/problem+json` (RFC 9457).",
        "`retry` tells what a second try may look like:",
        "",
        "- `no`: the same request will fail the same way",
        "- `same_id`: the outcome is unknown or the cause may pass; try again under the same id, never a fresh one",
        "- `after`: as `same_id`, but not before `retry_after_ms`",
        "",
        "| code | class | status | retry | meaning |",
        "|---|---|---|---|---|",
    )
    for error in MeshError.family():
        depth = len(error.__mro__) - len(MeshError.__mro__)
        name = "&nbsp;" * 2 * depth + error.__name__
        yield f"| `{error.code}` | {name} | {error.status} | {error.retry} | {error.title} |"


def _state_machines() -> Iterator[str]:
    machine = outbox.MACHINE
    yield from (
        MADE,
        "",
        "# State machines and admission tables",
        "",
        "## The outbox row",
        "",
        "The table is `MACHINE` in `src/claudemesh/kernel/outbox.py`. A row begins as",
        f"`{machine.initial}`. A pair of state and event that is not here is refused; an empty column is an end.",
        "",
        f"| when | {' | '.join(machine.states)} |",
        f"|---|{'---|' * len(machine.states)}",
        *(
            f"| {event} | {' | '.join(machine.table.get((state, event), '') for state in machine.states)} |"
            for event in machine.events
        ),
        "",
        "The same as a drawing, where Mermaid is drawn:",
        "",
        "```mermaid",
        machine.to_mermaid(),
        "```",
        "",
        "## Same id: what a second request is told",
        "",
        "The table is `ADMISSION` in the same file: the state of the row that stands under the id, and whether the",
        "fingerprint of the new request is the one that stands there.",
        "",
        "| the row is | same request | other request (other body, recipient, …) |",
        "|---|---|---|",
        "| not there | fresh: accepted | fresh: accepted |",
    )
    for state in outbox.OutboxState:
        verdicts = [outbox.ADMISSION.rows[state, match] for match in Match]
        cells = [f"{type(verdict).__name__.lower()}: `{verdict.word}`" for verdict in verdicts]
        yield f"| {state} | {' | '.join(cells)} |"
    yield from (
        "",
        "`busy` is answered 202 with that status, `replay` 200 with the first answer, both with `duplicate: true`,",
        "`conflict` 409 `idempotency_key_reused` with that word; a conflict changes nothing.",
    )


def _left_over(files: dict[str, str]) -> list[str]:
    """Return the schemas that no command has any more; beside them stands nothing that was not made."""
    found = (ROOT / "docs" / "reference" / "json").glob("*.json")
    return [name for path in found if (name := f"reference/json/{path.name}") not in files]


def main(arguments: list[str]) -> int:
    files = render_all()
    stale = _left_over(files)
    if "--check" not in arguments:
        for name in stale:
            (ROOT / "docs" / name).unlink()
    for name, text in files.items():
        path = ROOT / "docs" / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in arguments:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    if "--check" in arguments and stale:
        print(f"stale, run `make docs`: {', '.join(stale)}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
