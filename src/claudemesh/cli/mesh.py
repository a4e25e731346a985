"""`mesh`: made, joined, left. Who one is in it, is told by the broker and kept in the state directory."""

import os
import pwd
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from claudemesh.cli.command import DONE, FAILED, Group, Session, parse_duration
from claudemesh.cli.render import escape, when
from claudemesh.kernel.errors import ConfigError, Forbidden, MeshError, StateError
from claudemesh.kernel.outbox import OutboxState
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.home import lock_holder
from claudemesh.wire.names import POLICIES, SENDS_PER_WINDOW_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from claudemesh.daemon.identity import Joined

NAME_HELP = "What the other members call you."


@click.group(cls=Group)
def mesh() -> None:
    """Meshes: create, invite, join, list, set, leave."""


@mesh.command()
@click.argument("slug")
@click.option(
    "--broker", default="http://127.0.0.1:7450", show_default=True, metavar="URL", help="Where its broker is."
)
@click.option("--name", metavar="PEER", help=f"{NAME_HELP} [default: your user name]")
@click.option(
    "--admin-token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The broker's admin token, which it wants unless it is on this machine.",
)
@click.pass_obj
def create(session: Session, slug: str, broker: str, name: str | None, admin_token_file: Path | None) -> None:
    """Make a mesh, whose owner and first member you become."""
    from claudemesh.cli import enrol  # noqa: PLC0415 - the network's libraries are slow to load

    token = None if admin_token_file is None else read_token(admin_token_file)
    to = enrol.Enrolment(session.home, name or user_name(), SystemClock())
    joined = _enrolled(session, broker, lambda: enrol.create(to, slug, broker, token))
    session.out.document(
        _membership(joined), [f"{escape(joined.slug)} is there, and you are {escape(joined.name)} in it"]
    )
    _say_if_known_as(session, joined.name, name)


@mesh.command()
@click.argument("slug", required=False)
@click.option(
    "--uses", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="How many may join by it."
)
@click.option(
    "--expires", type=parse_duration, default="24h", show_default=True, metavar="TIME", help="Until when."
)
@click.option("--anyway", is_flag=True, help="Even as a plain member, for one who became an admin since joining.")
@click.pass_obj
def invite(session: Session, slug: str | None, *, uses: int, expires: float, anyway: bool) -> None:
    """Print a code that lets others join. Whoever has the code can: give it only to whom you mean."""
    from claudemesh.cli import enrol  # noqa: PLC0415 - as above
    from claudemesh.daemon import identity  # noqa: PLC0415
    from claudemesh.daemon.client import mint_id  # noqa: PLC0415
    from claudemesh.wire.invite import render_code  # noqa: PLC0415

    session.mesh = slug or session.mesh
    expires_at = SystemClock().wall_ms() + int(expires * 1000)
    joined, keys = identity.load_membership(session.state_dir), identity.load_keys(session.state_dir)
    if joined.role not in enrol.INVITERS and not anyway:
        raise Forbidden(
            f"you joined as a {joined.role}, and only owners and admins invite: ask one of them. "
            "If you became one since, say --anyway"
        )
    made = enrol.make_invite(joined, keys, mint_id(), uses, expires_at)
    code = render_code(made)
    document = {
        "code": code,
        "slug": joined.slug,
        "invite_id": made.invite_id,
        "uses": uses,
        "expires_at": expires_at,
        "broker_url": joined.broker_url,
    }
    session.out.document(document, [code])
    if not session.as_json:
        session.out.say(f"good for {uses} until {when(expires_at)}: claudemesh mesh join CODE --name PEER")


@mesh.command()
@click.argument("code")
@click.option("--name", required=True, metavar="PEER", help=NAME_HELP)
@click.pass_obj
def join(session: Session, code: str, name: str) -> None:
    """Become a member by an invite CODE; `-` reads it from standard input, where other users do not see it."""
    from claudemesh.cli import enrol  # noqa: PLC0415 - as above
    from claudemesh.wire.invite import parse_code  # noqa: PLC0415

    invited = parse_code(sys.stdin.read() if code == "-" else code)
    to = enrol.Enrolment(session.home, name, SystemClock())
    joined = _enrolled(session, invited.broker_url, lambda: enrol.join(to, invited))
    session.out.document(_membership(joined), [f"you are {escape(joined.name)} in {escape(joined.slug)} now"])
    _say_if_known_as(session, joined.name, name)


def _enrolled(session: Session, broker_url: str, ask: "Callable[[], Joined]") -> "Joined":
    from claudemesh.cli import enrol  # noqa: PLC0415 - as above

    with session.waiting("asking the broker") as shown:
        return enrol.patiently(lambda text: shown.aside(session.out.say, text), broker_url, ask)


def _say_if_known_as(session: Session, name: str, asked: str | None) -> None:
    from claudemesh.wire.names import parse_member_name  # noqa: PLC0415 - as above

    if asked is not None and parse_member_name(asked) != name:
        session.out.say(f"you were {name} in it already, and stay so: a member keeps its name")


@mesh.command("list")
@click.pass_obj
def list_meshes(session: Session) -> int:
    """List the meshes that you have joined."""
    from claudemesh.daemon import identity  # noqa: PLC0415 - as above

    entries, damaged = [], []
    for slug in session.home.meshes():
        state_dir = session.home.mesh_dir(slug)
        running = lock_holder(state_dir / "pid") is not None
        try:
            member = _membership(identity.load_membership(state_dir))
        except ConfigError as error:  # it hides none of the others
            damaged.append({"slug": slug, "detail": error.detail or error.title})
            continue
        entries.append({**member, "daemon": "running" if running else "stopped"})
    heads = ("slug", "name", "role", "daemon", "broker")
    rows = [(e["slug"], e["name"], e["role"], e["daemon"], e["broker_url"]) for e in entries]
    session.out.document({"meshes": entries, "damaged": damaged}, session.out.table(heads, rows))
    for each in damaged:
        slug = each["slug"]
        session.out.say(f"{slug}: {escape(each['detail'])}; see `claudemesh doctor --mesh {slug}`")
    return FAILED if damaged else DONE


@mesh.command("set")
@click.option(
    "--sends-per-window",
    type=click.IntRange(1, SENDS_PER_WINDOW_MAX),
    metavar="N",
    help="How many sends each member has in a window.",
)
@click.option(
    "--connections",
    type=click.Choice(POLICIES),
    help="Which counts if one member has two daemons: the newer, the older, or both.",
)
@click.pass_obj
def set_mesh(session: Session, /, **said: str | int | None) -> None:
    """Change what the mesh goes by; for its owners and admins."""
    changes = {name: value for name, value in said.items() if value is not None}
    if not changes:
        raise click.UsageError("say what to set: --sends-per-window or --connections")
    with session.client() as client:
        answer = client.mesh_set(**changes)
    session.out.document(answer, [f"{escape(name)}: {escape(value)}" for name, value in changes.items()])


@mesh.command()
@click.argument("slug", required=False)
@click.option("--force", is_flag=True, help="Even with messages that are not sent yet.")
@click.pass_obj
def leave(session: Session, slug: str | None, *, force: bool) -> None:
    """Leave a mesh: tell its broker, stop the daemon, and put its state aside, where nothing sends from it."""
    from claudemesh.cli.daemon import stop_daemon, supervisor_of  # noqa: PLC0415 - as above

    session.mesh = slug or session.mesh
    state_dir = session.state_dir
    if (supervisor := supervisor_of(session)) is not None:
        raise StateError(
            f"`claudemesh up` would start its daemon again: stop that first (process {supervisor or 'unknown'})",
            pid=supervisor,
        )
    if not force and (waiting := _count_waiting(session)):
        unsent = "1 message is" if waiting == 1 else f"{waiting} messages are"
        raise StateError(f"{unsent} not sent yet: wait, or say --force", waiting=waiting)
    with session.waiting("telling the broker"):
        untold = _tell_broker(session)
    stop_daemon(session)
    kept = session.home.left_dir(session.slug, str(SystemClock().wall_ms()))
    session.home.ensure_dir(kept.parent)
    state_dir.rename(kept)
    session.out.document(
        {"slug": session.slug, "left": True, "told_broker": untold is None, "kept_at": str(kept)},
        [f"left {escape(session.slug)}; its keys and messages are kept in {escape(kept)}"],
    )
    if untold is not None:
        session.out.say(f"the broker still counts you as a member: {untold}")


def _tell_broker(session: Session) -> str | None:
    """End the membership through the daemon, and the presence with it; return why the broker could not be told."""
    if lock_holder(session.state_dir / "pid") is None:
        return "the daemon does not run, so it was not told"
    with session.client() as client:
        try:
            client.member_revoke(client.health()["member_pubkey"])
        except MeshError as error:
            with suppress(MeshError):  # a member still, a last owner say, but nobody is to see it as there
                client.presence_end()
            return error.detail or error.title
    return None


def _count_waiting(session: Session) -> int:
    """Count what is accepted and not sent, by asking the daemon, or in its file if none runs."""
    if lock_holder(session.state_dir / "pid") is not None:
        with session.client() as client:
            health = client.health()
        return int(health["queue_depth"]) + int(health["inflight"])
    if not (session.state_dir / "outbox.db").exists():
        return 0
    import asyncio  # noqa: PLC0415 - only here

    from claudemesh.daemon.stores.sqlite.outbox import SqliteOutboxStore  # noqa: PLC0415 - only here

    outbox = SqliteOutboxStore.open(session.state_dir / "outbox.db")
    try:
        counts = asyncio.run(outbox.counts())
    finally:
        outbox.close()
    return counts[OutboxState.PENDING] + counts[OutboxState.INFLIGHT]


def read_token(path: Path) -> str:
    """Read a token from a private file: on the command line other users would see it."""
    from claudemesh.runtime.home import read_private  # noqa: PLC0415 - only with a token

    try:
        return read_private(path).decode("ascii", "replace").strip()
    except FileNotFoundError as error:
        raise click.BadParameter(f"{path} is not there") from error


def user_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid-{os.geteuid()}"


def _membership(joined: Any) -> dict[str, Any]:  # noqa: ANN401 - a struct of a module that is loaded late
    from msgspec.structs import asdict  # noqa: PLC0415 - as above

    return asdict(joined)
