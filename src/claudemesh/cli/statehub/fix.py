"""`statehub fix-consistency`: the hub is made to say what a repository's workplan files say.

What is to be done is decided in `consistency`; here it is asked for, one row at a time, and looked at once more
at the end: only what the hub then shows counts as done. A write that a relay queued is told as queued.

    --json   {repo, hub, matches, changed: [item], right: [item], queued: [item], failed: [item]}
             item: {kind, id, hub_id, what, where, …}
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from claudemesh.cli.command import DONE, FAILED, Command, Session
from claudemesh.cli.render import Output, escape
from claudemesh.cli.statehub.consistency import (
    Action,
    Cannot,
    Change,
    Create,
    Kind,
    Right,
    Rows,
    Wanted,
    derive_key,
    plan,
    wanted_of,
)
from claudemesh.cli.statehub.workplans import read_workplans
from claudemesh.edge.asking import Answered, Api, NobodyThere
from claudemesh.kernel.errors import ConnectionLost, DeadlineExceeded, DependencyError, RequestError
from claudemesh.wire import problem

FOLDER: Final = "workplans"
FILE_BYTES_MAX: Final = 4 << 20
PAGE: Final = 200
TRIES: Final = 3  # of a change that somebody else's change overtakes

Item = dict[str, Any]

_HAS: Final = frozenset({"id", "title", "status", "revision"})  # what every row of a hub has
_OK: Final = range(200, 202)
_QUEUED: Final = 202
_GONE: Final = 404
_STALE: Final = 412


@click.command("fix-consistency", cls=Command)
@click.option(
    "--repo",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="PATH",
    help=f"The repository: its {FOLDER}/*.md are canon.",
)
@click.option("--upstream", metavar="URL", help="The hub, or a relay. [default: `upstream` of edge.toml]")
@click.option("--token-file", metavar="FILE", help="The hub's token, in a private file; or STATEHUB_TOKEN.")
@click.option("--dry-run", is_flag=True, help="Only say what would be changed.")
@click.pass_obj
def fix_consistency(
    session: Session, *, repo: Path, upstream: str | None, token_file: str | None, dry_run: bool
) -> int:
    """Make the hub match the repository's workplan files; exit 0 if it does."""
    wanted = read_wanted(repo)
    api = _hub(session, upstream, token_file)
    with session.waiting("comparing") as shown:
        report = dry_plan(api, wanted) if dry_run else fix(api, wanted, shown.reach)
    document = {"repo": str(repo), "hub": api.where, "dry_run": dry_run, **report}
    session.out.document(document, report_lines(session.out, document))
    return DONE if report["matches"] else FAILED


# --- what is wanted ----------------------------------------------------------------------------------


def read_wanted(repo: Path) -> list[Wanted]:
    """Read the files; whatever is wrong with any of them is said at once, and nothing is changed."""
    folder = repo / FOLDER
    if not folder.is_dir():
        raise click.BadParameter(f"{repo} has no folder {FOLDER}/", param_hint="--repo")
    texts: list[tuple[str, str]] = []
    problems: list[str] = []
    for path in sorted(folder.glob("*.md")):
        name = f"{FOLDER}/{path.name}"
        try:
            texts.append((name, _read(path)))
        except (OSError, ValueError) as error:
            problems.append(f"{name}: {getattr(error, 'strerror', None) or error}")
    workplans, wrong = read_workplans(texts)
    if problems + wrong:
        told = problems + wrong
        raise RequestError(f"{'; '.join(told)}; nothing was changed", problems=told)
    return wanted_of(workplans, repo.resolve().name)


def _read(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise ValueError(f"is larger than {FILE_BYTES_MAX} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ValueError("is not UTF-8") from error


# --- asking the hub ----------------------------------------------------------------------------------


def _hub(session: Session, upstream: str | None, token_file: str | None) -> Api:
    from claudemesh.cli.statehub.edge import build_settings  # noqa: PLC0415 - the relay's settings
    from claudemesh.edge.credentials import TOKEN, read_token  # noqa: PLC0415 - as above
    from claudemesh.runtime.environment import read_environment  # noqa: PLC0415 - only here

    settings = build_settings(session, {"upstream": upstream, "token_file": token_file})
    token = read_token(settings.token_file, read_environment().get(TOKEN) or None)
    return Api.at_url(settings.upstream, token)


def read_rows(api: Api) -> Rows:
    """Return all workplans and tasks of the hub."""
    return {"workplans": list(_rows(api, "workplans")), "tasks": list(_rows(api, "tasks"))}


def _rows(api: Api, kind: Kind) -> Iterator[Any]:
    cursor: str | None = ""
    while cursor is not None:
        page = _ask(api, "GET", f"/{kind}/?limit={PAGE}{f'&cursor={cursor}' if cursor else ''}").checked()
        items = page.get("items") if isinstance(page, dict) else None
        if not isinstance(items, list) or not all(isinstance(row, dict) and row.keys() >= _HAS for row in items):
            raise DependencyError(f"{api.where} is no State Hub: it does not list its {kind} as one does")
        yield from items
        cursor = page.get("next_cursor")


def _ask(api: Api, method: str, path: str, body: object = None, **headers: str) -> Answered:
    try:
        return api.ask(method, path, body, {name.replace("_", "-"): text for name, text in headers.items()})
    except NobodyThere as error:
        raise DependencyError(str(error)) from error


# --- doing it ----------------------------------------------------------------------------------------


def dry_plan(api: Api, wanted: list[Wanted]) -> Item:
    """Say what would be done."""
    actions = plan(wanted, read_rows(api))
    report = _empty()
    for action in actions:
        match action:
            case Right():
                report["right"].append(_item(action, "right"))
            case Cannot(reason=reason):
                report["failed"].append(_item(action, "cannot", reason=reason))
            case Create() | Change():
                report["changed"].append(
                    _item(action, "would_create" if isinstance(action, Create) else "would_change")
                )
    return {"matches": not report["changed"] and not report["failed"], **report}


def fix(api: Api, wanted: list[Wanted], reach: Callable[[int, int], None] = lambda *_: None) -> Item:
    """Do what is to be done, then look again: what the hub does not show is not done, whatever it answered."""
    report = _empty()
    actions = plan(wanted, read_rows(api))
    for number, action in enumerate(actions):
        reach(number, len(actions))
        item = _do(api, action)
        report[_PLACE[item["what"]]].append(item)
    wrong = [action for action in plan(wanted, read_rows(api)) if not isinstance(action, Right)]
    told = {(item["kind"], item["id"]) for place in ("queued", "failed") for item in report[place]}
    for action in wrong:
        if (action.wanted.kind, action.wanted.id) not in told:
            report["failed"].append(
                _item(action, "cannot", reason="it was changed, and the hub shows something else")
            )
    return {"matches": not wrong, **report}


_PLACE: Final = {
    "created": "changed",
    "changed": "changed",
    "right": "right",
    "queued": "queued",
    "cannot": "failed",
}


def _empty() -> Item:
    return {"changed": [], "right": [], "queued": [], "failed": []}


def _item(action: Action, what: str, **more: Any) -> Item:  # noqa: ANN401  as it is told
    wanted = action.wanted
    row = action.row if isinstance(action, Change | Right) else None
    item = {
        "kind": wanted.kind,
        "id": wanted.id,
        "hub_id": None if row is None else row["id"],
        "what": what,
        "where": wanted.where,
    }
    if isinstance(action, Change):
        item["from"] = {name: action.row[name] for name in action.body}
        item["to"] = action.body
    elif isinstance(action, Create):
        item["to"] = action.body
    note = None if isinstance(action, Cannot) else action.note
    return {**item, **({} if note is None else {"note": note}), **more}


def _do(api: Api, action: Action) -> Item:
    try:
        match action:
            case Right():
                return _item(action, "right")
            case Cannot(reason=reason):
                return _item(action, "cannot", reason=reason)
            case Create():
                return _create(api, action, action.wanted.key)
            case Change():
                return _change(api, action)
    except (ConnectionLost, DeadlineExceeded) as error:
        return _item(action, "cannot", reason=f"{error.detail}; run it again, which does nothing twice")


def _create(api: Api, action: Create, key: str) -> Item:
    """Create a row, once however often it is asked for; one that was deleted since is created anew."""
    wanted = action.wanted
    answer = _ask(api, "POST", f"/{wanted.kind}/", action.body, idempotency_key=key)
    if answer.status == _QUEUED:
        return _item(action, "queued", outbox_id=answer.json.get("outbox_id"))
    if answer.status not in _OK:
        return _item(action, "cannot", reason=_reason(answer, _MADE_BEFORE))
    row = answer.json
    if "idempotent-replayed" in answer.headers:
        standing = _ask(api, "GET", f"/{wanted.kind}/{row['id']}")
        if standing.status == _GONE:
            return _create(api, action, derive_key(key, wanted.kind, wanted.id, row["id"]))
    return _item(action, "created", hub_id=row["id"])


_MADE_BEFORE: Final = (
    "it was created before with another title or status, and that row is gone or has another name: "
    "put the id of the row that is meant into the file"
)


def _change(api: Api, action: Change) -> Item:
    """Change a row as it was seen, or, since the file is canon, as somebody else has made it meanwhile."""
    path = f"/{action.wanted.kind}/{action.row['id']}"
    for _ in range(TRIES):
        answer = _ask(api, "PATCH", path, action.body, if_match=f'"{action.row["revision"]}"')
        if answer.status == _QUEUED:
            return _item(action, "queued", outbox_id=answer.json.get("outbox_id"))
        if answer.status != _STALE:
            break
        row = _ask(api, "GET", path)
        if row.status not in _OK:
            answer = row
            break
        action = replace(action, row=row.json)
    if answer.status in _OK:
        return _item(action, "changed")
    return _item(action, "cannot", reason=_reason(answer, "the row goes on changing: run it again"))


def _reason(answer: Answered, of_conflict: str) -> str:
    error = problem.parse(answer.status, answer.json)
    if answer.status in (409, _STALE):
        return of_conflict
    return f"{error.title}{f': {error.detail}' if error.detail else ''}"


# --- telling -----------------------------------------------------------------------------------------


def report_lines(out: Output, report: Item) -> list[str]:
    lines = [_line(out, item) for place in ("changed", "queued", "failed") for item in report[place]]
    lines.append(
        f"{len(report['changed'])} {'to change' if report['dry_run'] else 'changed'}, {len(report['right'])} right "
        f"already, {len(report['queued'])} queued, {len(report['failed'])} could not be"
    )
    if report["matches"]:
        return [*lines, out.paint("the hub matches the files", "green")]
    queued = (
        "; what is queued is not done yet: run this again when the relay has sent it" if report["queued"] else ""
    )
    return [*lines, out.paint(f"the hub does not match the files{queued}", "yellow")]


_WORDS: Final = {
    "created": "created",
    "changed": "changed",
    "would_create": "would be created",
    "would_change": "would be changed",
    "queued": "queued, not done",
    "cannot": "could not be",
}


def _line(out: Output, item: Item) -> str:
    colour = {"queued": "yellow", "cannot": "red"}.get(item["what"], "green")
    after = item.get("to", {})
    before = item.get("from", {})
    told = ", ".join(
        f"{name} {escape(before[name])} -> {escape(value)}" if name in before else f"{name} {escape(value)}"
        for name, value in after.items()
    )
    why = escape(item.get("reason") or item.get("note") or "")
    words = out.paint(_WORDS[item["what"]], colour)  # type: ignore[arg-type]
    return f"{escape(item['id'])}: {words}{f': {told}' if told else ''}{f' ({why})' if why else ''}"
