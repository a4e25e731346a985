"""Runs checks one after the other. None of them can take the others down, or keep them waiting for ever.

A check runs in a thread of its own: a name server that does not answer and a file system that hangs know no
timeout. When its time is up it is left behind, and what it had found by then counts.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Final

from claudemesh.cli.doctor.model import Check, Finding, Fixed, Repair, Report, Result, Verdict
from claudemesh.cli.doctor.scene import Scene
from claudemesh.kernel.errors import MeshError

Progress = Callable[[int, int, str], None]  # how many checks are done, of how many, and which one runs

_REPORT: Final = "run `claudemesh doctor --bundle` and send what it writes along with a report of this"


def run(scene: Scene, checks: Sequence[Check], progress: Progress) -> list[Result]:
    results: list[Result] = []
    for done, check in enumerate(checks):
        progress(done, len(checks), check.name)
        results += [Result(check, finding) for finding in _bounded(check, scene)]
    return results


def run_and_fix(make_scene: Callable[[], Scene], checks: tuple[Check, ...], progress: Progress) -> Report:
    """Run the checks, mend what they say can be mended, and run the same checks again: they are the judge."""
    results = run(make_scene(), checks, progress)
    fixed = [_mend(result, repair) for result in results for repair in result.finding.repairs]
    return Report(run(make_scene(), checks, progress) if fixed else results, fixed)


def _mend(result: Result, repair: Repair) -> Fixed:
    try:
        repair.run()
    except (MeshError, OSError) as error:
        return Fixed(result.title, repair.says, explain(error))
    return Fixed(result.title, repair.says)


def _bounded(check: Check, scene: Scene) -> list[Finding]:
    found: list[Finding] = []
    thread = threading.Thread(target=_look, args=(check, scene, found), name=f"doctor-{check.name}", daemon=True)
    thread.start()
    thread.join(check.within_s)
    seen = list(found)
    if thread.is_alive():
        detail = f"did not end within {check.within_s:g} s, and was left"
        seen.append(Finding(Verdict.UNKNOWN, detail, "try again; if it stays so, the disk or the network hangs"))
    return seen


def _look(check: Check, scene: Scene, found: list[Finding]) -> None:
    try:
        found.extend(check.look(scene))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this check's and not the others'
        found.append(Finding(Verdict.FAIL, f"the check itself failed: {explain(error)}", _REPORT))


def explain(error: BaseException) -> str:
    """Say an error in one line. Of one that is not ours the class alone: its words may quote anything."""
    if isinstance(error, MeshError):
        return f"{error.code}: {error.detail or error.title}"
    if isinstance(error, OSError):
        return f"{type(error).__name__}: {error.strerror or 'no reason given'}"
    return type(error).__name__
