"""`statehub outbox`: what waits for the hub, and what an operator decides about it.

The relay is asked if it runs; else its file is looked at, and changed under the lock of a relay.
"""

import os
import pwd
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from claudemesh.cli.command import FAILED, UNREACHABLE, Group, Session, parse_duration
from claudemesh.cli.render import escape
from claudemesh.kernel.errors import InvalidRequest
from claudemesh.runtime.clock import SystemClock

if TYPE_CHECKING:
    from claudemesh.edge.desk import Desk, Verb

STATES: Final = ("queued", "sending", "acked", "conflict", "dead", "cancelled")
PAGE_MAX: Final = 1_000
NAME_CHARS_MAX: Final = 128
IMPORT_BYTES_MAX: Final = 60 << 20  # a relay takes a little more in one request
LOOK_S: Final = 0.1
COALESCED: Final = "coalesced"  # the relay itself: nobody is called so


def parse_by(text: str) -> str:
    if not text.strip() or not text.isprintable() or len(text) > NAME_CHARS_MAX or text == COALESCED:
        raise click.BadParameter(f"{text!r} is no name of a person")
    return text


ENVELOPE: Final = click.argument("envelope", metavar="ENVELOPE")
BY: Final = click.option(
    "--by", type=parse_by, metavar="NAME", help="Who decides, as it is written down. [default: the login user]"
)


@click.group(cls=Group)
def outbox() -> None:
    """Outbox: status, list, show, replay, retry, cancel, mark-dead, resolve, export, import, recover."""


# --- looking -----------------------------------------------------------------------------------------


@outbox.command()
@click.pass_obj
def status(session: Session) -> int:
    """Say whether anything of this host is unsent, and so whether an outage can be declared over."""
    from claudemesh.cli.statehub import showing  # noqa: PLC0415 - not for `--help`

    judged = showing.judge(_desk(session).status())
    session.out.document(judged, showing.status_lines(session.out, judged))
    return 0 if judged["nothing_waits"] else FAILED


@outbox.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only those in this state.")
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="CURSOR", help="Go on where a page ended.")
@click.option(
    "--limit",
    type=click.IntRange(1, PAGE_MAX),
    default=100,
    show_default=True,
    metavar="N",
    help="At most so many.",
)
@click.pass_obj
def list_envelopes(session: Session, state: str | None, after: int, limit: int) -> None:
    """List envelopes in the order in which they were accepted."""
    from claudemesh.cli.statehub import showing  # noqa: PLC0415 - as above

    page = _desk(session).page(state, after, limit)
    session.out.document(page, showing.page_lines(session.out, page, SystemClock().wall_ms()))


@outbox.command()
@ENVELOPE
@click.pass_obj
def show(session: Session, envelope: str) -> None:
    """Show one envelope, by its id or its key, and of a conflict both values side by side."""
    _print(session, _desk(session).show(envelope))


# --- replaying ---------------------------------------------------------------------------------------


@outbox.command()
@click.option(
    "--wait",
    "wait_s",
    type=parse_duration,
    default="10s",
    show_default=True,
    metavar="TIME",
    help="How long to wait until nothing waits to be sent.",
)
@click.pass_obj
def replay(session: Session, wait_s: float) -> int:
    """Have the relay ask the hub at once whether it is there, and send what waits; exit 0 if all of it was sent."""
    from claudemesh.runtime.patience import wait_until  # noqa: PLC0415 - only here
    from claudemesh.runtime.processes import pause  # noqa: PLC0415 - only here

    desk = _desk(session)
    desk.replay()
    found: dict[str, Any] = {}
    at_first = 0

    def is_sent() -> bool:
        nonlocal at_first
        if found:
            pause(LOOK_S)
        found.update(desk.status())
        at_first = max(at_first, found["pending"])
        shown.reach(at_first - found["pending"], at_first)
        return not found["pending"]

    with session.waiting("replaying") as shown:
        is_done = wait_until(is_sent, wait_s)
    names = ("pending", "conflicts", "dead", "upstream_reachable")
    document = {name: found[name] for name in names}
    reach = "" if found["upstream_reachable"] else "; the hub cannot be reached"
    said = f"waiting: {found['pending']}, in conflict: {found['conflicts']}, dead: {found['dead']}{reach}"
    session.out.document(document, [said])
    if is_done:
        return 0
    return FAILED if found["upstream_reachable"] else UNREACHABLE


# --- deciding ----------------------------------------------------------------------------------------


def _deciding(verb: "Verb", help_text: str) -> None:
    @outbox.command(verb, help=help_text)
    @ENVELOPE
    @BY
    @click.pass_obj
    def decide(session: Session, envelope: str, by: str | None) -> None:
        _print(session, _desk(session).decide(verb, envelope, by or login_name()))


_deciding("retry", "Try again: one in conflict as it is, a dead one under a fresh key, at the end of its queue.")
_deciding("cancel", "Give an envelope up; its key stays known, and is never sent.")
_deciding("mark-dead", "Take an envelope out of the queue, and keep it to be looked at.")


@outbox.command()
@ENVELOPE
@click.option(
    "--keep",
    type=click.Choice(("mine", "theirs")),
    required=True,
    help="Write ours over what was seen there and nothing newer, or give ours up.",
)
@BY
@click.pass_obj
def resolve(session: Session, envelope: str, keep: Literal["mine", "theirs"], by: str | None) -> None:
    """Decide a conflict; `show` has both values."""
    _print(session, _desk(session).decide("resolve", envelope, by or login_name(), keep))


# --- to another machine and back ---------------------------------------------------------------------


@outbox.command()
@click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A new file, for you alone.",
)
@click.pass_obj
def export(session: Session, path: Path | None) -> None:
    """Write every envelope that is not settled as a line of JSON. They stay where they are."""
    from claudemesh.cli.render import render_json  # noqa: PLC0415 - only here
    from claudemesh.runtime.home import write_private  # noqa: PLC0415 - only here

    with session.waiting("reading the outbox"):
        items = list(_desk(session).export())
    lines = [render_json(one) for one in items]
    if path is None:
        session.out.document({"items": items}, lines)
        return
    try:
        write_private(path, "".join(f"{line}\n" for line in lines).encode(), replace=False)
    except FileExistsError as error:
        raise click.BadParameter(f"{path} is there already, and stays as it is", param_hint="--file") from error
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror}", param_hint="--file") from error
    document = {"exported": len(items), "file": str(path)}
    session.out.document(document, [f"{len(items)} envelopes written to {escape(path)}"])


@outbox.command("import")
@click.argument("path", metavar="FILE")
@BY
@click.pass_obj
def import_(session: Session, path: str, by: str | None) -> None:
    """Queue what another relay exported: all of it or nothing. What is known here already changes nothing.

    FILE may be - for standard input.
    """
    lines = read_lines(_read(path))
    session.home.ensure()  # on a machine that is new to this, the import is what comes first
    with session.waiting("importing"):
        done = _desk(session).import_(lines, by or login_name())
    said = f"{escape(done['imported'])} envelopes queued, {escape(done['known'])} known already"
    session.out.document(done, [said])


def read_lines(content: bytes) -> list[bytes]:
    """Return the lines that hold something; each is JSON, or the error names it."""
    import orjson  # noqa: PLC0415 - only here

    lines = [(number, line) for number, line in enumerate(content.split(b"\n"), start=1) if line.strip()]
    for number, line in lines:
        try:
            orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise InvalidRequest(f"line {number} is not JSON, and nothing was imported: {error}") from error
    return [line for _, line in lines]


def _read(path: str) -> bytes:
    try:
        if path == "-":
            content = sys.stdin.buffer.read(IMPORT_BYTES_MAX + 1)
        else:
            with Path(path).open("rb") as file:
                content = file.read(IMPORT_BYTES_MAX + 1)
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror}", param_hint="FILE") from error
    if len(content) > IMPORT_BYTES_MAX:
        raise click.BadParameter(f"{path} is larger than {IMPORT_BYTES_MAX} bytes: import it in parts")
    return content


@outbox.command()
@click.pass_obj
def recover(session: Session) -> None:
    """Save what can be read of a damaged outbox into a new one, and keep the damaged file."""
    from claudemesh.edge.desk import recover_outbox  # noqa: PLC0415 - only here

    with session.waiting("reading the outbox"):
        saved = recover_outbox(session.home.edge_dir, SystemClock())
    if saved is None:
        session.out.document({"damaged": False}, ["the outbox is sound: there is nothing to recover"])
        return
    document = {"damaged": True, "saved": saved.saved, "missing": saved.missing, "kept_at": str(saved.kept_at)}
    lines = [
        f"{saved.saved} envelopes saved; {saved.missing} numbers before the last of them could not be read",
        f"the damaged file is kept: {escape(saved.kept_at)}",
        "a key that is missing is no longer known here: the hub still knows those that reached it",
    ]
    session.out.document(document, lines)


# --- shared ------------------------------------------------------------------------------------------


def _desk(session: Session) -> "Desk":
    from claudemesh.edge.desk import find_desk  # noqa: PLC0415 - not for `--help`

    return find_desk(session.home.edge_dir)


def _print(session: Session, shown: dict[str, Any]) -> None:
    from claudemesh.cli.statehub import showing  # noqa: PLC0415 - as above

    session.out.document(shown, showing.envelope_lines(session.out, shown, SystemClock().wall_ms()))


def login_name(find: Callable[[int], Any] = pwd.getpwuid) -> str:
    """Return who is logged in; a number, of a user whom the machine has no name for."""
    uid = os.geteuid()
    try:
        name: str = find(uid).pw_name
    except KeyError:
        return f"uid {uid}"
    return name
