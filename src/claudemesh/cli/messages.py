"""`send`, `inbox` and `trace`: a message out, messages in, and the life of one.

`send` answers when the daemon has made the message durable, which is `queued` and nothing more. With `--wait` it
asks for the message's receipts until they are as far as was asked; running out of time is a failure that says how
far they came, and the message stays on its way. Ctrl-C says so too: else whoever sends again sends a double.
"""

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from claudemesh.cli.command import DONE, FAILED, INTERRUPTED, Command, Session, parse_duration
from claudemesh.cli.render import Output, escape, when
from claudemesh.cli.topic import parse_name
from claudemesh.daemon.client import Client
from claudemesh.kernel.errors import MeshError
from claudemesh.kernel.ids import parse_client_message_id
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.processes import pause

Json = dict[str, Any]

STATES: Final = ("queued", "accepted", "delivered", "read", "acted")  # each includes those before it
ENDED: Final = frozenset({"dead", "aborted", "dead_letter"})
POLL_S: Final = 0.01
POLL_MAX_S: Final = 0.25


def parse_meta(text: str) -> Json:
    """Read an object. Doubtful JSON is refused here, where the mistake was made."""
    import json  # noqa: PLC0415 - only with --meta

    def refuse(word: str) -> Any:  # noqa: ANN401 - never returns
        raise ValueError(f"{word} is not JSON")

    def pairs(members: list[tuple[str, Any]]) -> Json:
        if len(dict(members)) < len(members):
            raise ValueError("a name stands twice")
        return dict(members)

    try:
        meta = json.loads(text, parse_constant=refuse, object_pairs_hook=pairs)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"not a JSON object: {error}") from error
    if not isinstance(meta, dict):
        raise click.BadParameter("not a JSON object")
    return meta


def parse_id(text: str) -> str:
    try:
        return parse_client_message_id(text)
    except MeshError as error:
        raise click.BadParameter(str(error)) from error


@click.command(cls=Command)
@click.argument("to")
@click.argument("text")
@click.option(
    "--id", "client_message_id", type=parse_id, metavar="ID", help="The message's id; used again, it counts once."
)
@click.option(
    "--priority",
    type=click.Choice(["now", "next", "low"]),
    help="Alert the receiver at once, at its next turn, or not. [default: next]",
)
@click.option("--meta", type=parse_meta, metavar="JSON", help="An object that travels along.")
@click.option("--reply-to", metavar="ID", help="The broker message id that this answers.")
@click.option(
    "--wait",
    type=click.Choice(["accepted", "delivered", "read"]),
    help="Return when the broker has it, the receiver has it, or it was read.",
)
@click.option(
    "--timeout",
    type=parse_duration,
    default="30s",
    show_default=True,
    metavar="TIME",
    help="For the send and the wait together.",
)
@click.pass_obj
def send(  # noqa: PLR0913 - the options of one command
    session: Session,
    *,
    to: str,
    text: str,
    client_message_id: str | None,
    priority: str | None,
    meta: Json | None,
    reply_to: str | None,
    wait: str | None,
    timeout: float,
) -> int:
    """Send TEXT to a peer's name or public key, to #topic, or to queue:NAME; TEXT `-` reads standard input."""
    clock = SystemClock()
    deadline_ms = clock.monotonic_ms() + int(timeout * 1000)
    message = _read(text)
    what = f"waiting until it is {wait}" if wait else "handing it to the daemon"
    with session.client(timeout) as client, session.waiting(what):
        answer = client.send(
            to, message, priority=priority, meta=meta, reply_to_id=reply_to, client_message_id=client_message_id
        )
        waited = _wait(client, answer, wait, deadline_ms) if wait else None
    out = session.out
    if wait is None or waited is None:
        again = " (again: it was sent before)" if answer.get("duplicate") else ""
        out.document(answer, [f"{out.state(answer['status'])}  {escape(answer['client_message_id'])}{again}"])
        return DONE
    return _show_waited(out, answer, waited, wait)


class Waited(NamedTuple):
    life: Json
    is_interrupted: bool = False


def _show_waited(out: Output, answer: Json, waited: Waited, wanted: str) -> int:
    """Print how far the message came; return the exit code."""
    reached = str(waited.life["state"])
    has_arrived = _is_as_far(reached, wanted)
    out.document(
        {**answer, "state": reached, "waited_for": wanted, "reached": has_arrived},
        [f"{out.state(reached)}  {escape(answer['client_message_id'])}"],
    )
    if not has_arrived:
        until = "when you stopped waiting" if waited.is_interrupted else "in time"
        why = _last_words(waited.life) if reached in ENDED else f"it was not {wanted} {until}, and may still be"
        out.say(f"the message is {reached}: {why}")
    if waited.is_interrupted:
        return INTERRUPTED
    return DONE if has_arrived else FAILED


def _read(text: str) -> str:
    try:
        message = sys.stdin.read() if text == "-" else text
        message.encode()
    except UnicodeError as error:
        raise click.BadParameter("it is not UTF-8, and a message is text", param_hint="TEXT") from error
    return message


def _last_words(life: Json) -> str:
    """Return what the end of a message rests on."""
    told = [str(step["evidence"]) for step in life["steps"] if step["state"] == life["state"]]
    return told[-1] if told else "it will not get there"


def _is_as_far(state: str, wanted: str) -> bool:
    return state in STATES and STATES.index(state) >= STATES.index(wanted)


def _wait(client: Client, answer: Json, wanted: str, deadline_ms: int) -> Waited:
    """Ask until the message is as far as wanted, or cannot get there, or time is up, or Ctrl-C; return how far."""
    clock = SystemClock()
    patience_s = POLL_S
    life: Json = {"state": answer["status"], "steps": []}
    try:
        while True:
            life = client.trace(answer["client_message_id"])
            left_s = (deadline_ms - clock.monotonic_ms()) / 1000
            if life["state"] in ENDED or _is_as_far(life["state"], wanted) or left_s <= 0:
                return Waited(life)
            pause(min(patience_s, left_s))
            patience_s = min(patience_s * 1.5, POLL_MAX_S)
    except KeyboardInterrupt:
        return Waited(life, is_interrupted=True)


# --- the inbox ---------------------------------------------------------------------------------------


@click.command(cls=Command)
@click.option("--follow", is_flag=True, help="Go on with what arrives.")
@click.option("--since", metavar="ISO", help="Only what was received from then on.")
@click.option("--search", metavar="WORDS", help="Only what holds these words.")
@click.option("--mark-read", is_flag=True, help="Tell the senders that what is shown was read.")
@click.option("--from", "sender", metavar="PEER", help="Only what this peer sent.")
@click.option("--topic", type=parse_name, metavar="NAME", help="Only this topic's messages.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="N",
    help="At most so many, and 1000.",
)
@click.option("--cursor", metavar="CURSOR", help="Go on where `next_cursor` of another page says.")
@click.option("--archive", is_flag=True, help="Search what the pipeline keeps of all inboxes, without a daemon.")
@click.option(
    "--lake",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where it keeps that. [default: lake in the home]",
)
@click.pass_obj
def inbox(  # noqa: PLR0913 - the options of one command
    session: Session,
    *,
    follow: bool,
    since: str | None,
    search: str | None,
    mark_read: bool,
    sender: str | None,
    topic: str | None,
    limit: int,
    cursor: str | None,
    archive: bool,
    lake: Path | None,
) -> None:
    """Show what was received, oldest first. Showing marks nothing as read."""
    if search is not None and (follow or since or sender or topic):
        raise click.UsageError("--search goes with --limit, --cursor and --mark-read only")
    if search is not None and not search.strip():
        raise click.UsageError("--search needs a word to look for")
    if archive or lake:
        if not archive or search is None or mark_read or session.mesh:
            raise click.UsageError("--archive goes with --search, --lake, --limit and --cursor only")
        from claudemesh.pipeline.archive import search as search_archive  # noqa: PLC0415 - only with --archive

        page = search_archive(lake or session.home.lake_dir, search, limit, cursor)
        session.out.document(page, _lines(session.out, page))
        return
    with session.client() as client:
        if follow:
            from claudemesh.cli.follow import follow_inbox  # noqa: PLC0415 - only with --follow

            with suppress(KeyboardInterrupt):  # how following ends
                for message in follow_inbox(session.out, client, since=since, topic=topic, sender=sender):
                    show_message(session.out, message)
                    if mark_read:
                        client.inbox_read([message["broker_message_id"]])
            return
        if search is None:
            page = client.inbox(since=since, topic=topic, sender=sender, limit=limit, cursor=cursor)
        else:
            page = client.inbox_search(search, limit=limit, cursor=cursor)
        session.out.document(page, _lines(session.out, page))
        if mark_read and page["messages"]:  # after they were shown: what nobody saw was not read
            client.inbox_read([message["broker_message_id"] for message in page["messages"]])


def show_message(out: Output, message: Json) -> None:
    """Print one message while following: a line of JSON, or as in the list."""
    out.entry(message, message_lines(out, message))


def _lines(out: Output, page: Json) -> Iterator[str]:
    for message in page["messages"]:
        yield from message_lines(out, message)
    if page.get("next_cursor"):
        yield out.paint(f"more: --cursor {escape(page['next_cursor'])}", "dim")


def message_lines(out: Output, message: Json) -> list[str]:
    """Return a head, and the body indented under it, so that no body can look like a head."""
    where = f" #{escape(message['topic'])}" if message.get("topic") else ""
    head = f"{when(message.get('received_at'))}  {escape(message.get('from_name') or message.get('from'))}{where}"
    ids = out.paint(escape(message.get("broker_message_id")), "dim")
    body = escape(message.get("body", ""), lines=True).split("\n")
    return [f"{out.paint(head, 'bold')}  {ids}", *(f"    {line}" for line in body)]


# --- one message's life --------------------------------------------------------------------------------


@click.command(cls=Command)
@click.argument("any_id", metavar="ID")
@click.pass_obj
def trace(session: Session, any_id: str) -> None:
    """Show the life of one message, with what each step rests on. ID is the broker's, or your own."""
    with session.client() as client:
        life = client.trace(any_id)
    out = session.out
    rows = [
        (step["state"], when(step.get("at")), step.get("recipient"), step["evidence"]) for step in life["steps"]
    ]
    # A row that is still to be sent is nothing to ask the broker about.
    is_old = life.get("broker_message_id") and not life.get("is_current", True)
    unasked = " (the broker cannot be asked now)" if is_old else ""
    head = f"{escape(life['client_message_id'])}  {out.state(life['state'])}{unasked}"
    out.document(life, [head, *out.table(("state", "at", "recipient", "evidence"), rows)])
