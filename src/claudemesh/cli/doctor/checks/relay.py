"""The relay before a hub: whether it runs, what waits in it, and what waits for a person."""

from collections.abc import Iterator
from typing import Any, Final

from claudemesh.cli.doctor.model import Finding, absent, declare, fail, ok, unknown, warn
from claudemesh.cli.doctor.scene import Scene
from claudemesh.edge.concerns import COUNTED, Concern, judge
from claudemesh.edge.desk import RelayDesk, find_desk
from claudemesh.kernel.errors import MeshError
from claudemesh.storage.sqlite.inspect import count_rows


@declare(
    "relay",
    "relay",
    "The relay runs if something waits in it, its upstream takes its writes, and no envelope is in conflict "
    "or dead.",
    "`statehub-edge` starts it. `statehub outbox list` shows what waits; `statehub outbox resolve` decides "
    "conflicts, `retry` and "
    "`cancel` dead ones. Refused (401, 403): give it a valid token in `token_file` or `STATEHUB_TOKEN` and "
    "restart it.",
)
def relay(scene: Scene) -> Iterator[Finding]:
    if not scene.home.edge_dir.is_dir():
        yield absent("no relay has run here")
        return
    match scene.relay:
        case None:
            yield _at_rest(scene)
        case MeshError() as error:
            yield fail(f"it does not answer: {error.detail or error.title}", "restart it: `statehub-edge`")
        case status:
            yield _running(status)


def _running(status: dict[str, Any]) -> Finding:
    concerns = judge(status)
    figures = ", ".join(f"{status[name]} {name}" for name in COUNTED)
    if Concern.DAMAGED in concerns:
        return fail(
            "its outbox is damaged, and nothing can wait", "stop it; `statehub outbox recover`; start it again"
        )
    if Concern.REFUSED in concerns:
        fix = "give it a valid token, in `token_file` of edge.toml or STATEHUB_TOKEN, and restart `statehub-edge`"
        return fail(f"paused: the upstream refuses its credential ({figures})", fix)
    if Concern.CONFLICTS in concerns or Concern.DEAD in concerns:
        fix = (
            "see `statehub outbox list`; then `statehub outbox resolve ID --keep mine|theirs`, `retry` or `cancel`"
        )
        return fail(f"waits for a person: {figures}", fix)
    if Concern.UNREACHABLE in concerns:
        return warn(f"its upstream is away ({figures})", "start the upstream; what waits is replayed by itself")
    return ok(f"upstream reached, {figures}")


def _at_rest(scene: Scene) -> Finding:
    """Judge a relay by its file, unless it was only just starting."""
    folder = scene.home.edge_dir
    try:
        desk = find_desk(folder)
        if isinstance(desk, RelayDesk):
            return _running(desk.status())
    except MeshError as error:
        return fail(f"it does not answer: {error.detail or error.title}", "restart it: `statehub-edge`")
    if not (folder / "outbox.db").exists():
        return absent("it does not run, and has queued nothing")
    try:
        with scene.looking(folder / "outbox.db") as connection:
            rows = count_rows(connection).get("outbox")
    except MeshError as error:
        return unknown(f"its outbox cannot be counted: {error.detail}", "the check of its integrity says more")
    counts = rows if isinstance(rows, dict) else {}
    waiting = {state: counts[state] for state in ("pending", "inflight", "conflict", "dead") if counts.get(state)}
    if waiting:
        said = ", ".join(f"{count} {state}" for state, count in waiting.items())
        return fail(f"it does not run, and holds {said}", "start it: `statehub-edge`; it replays by itself")
    return ok("it does not run, and nothing waits in it")


CHECKS: Final = (relay,)
