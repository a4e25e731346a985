"""`up`: a broker and a daemon on this machine, watched over until Ctrl-C. The first run makes the mesh `local`.

What fails at the start ends the command with its reason. Once both have answered, one that ends is started again.
"""

from typing import Final

import click

from claudemesh.cli.command import Command, Session, parse_listen
from claudemesh.cli.daemon import PROBE_S, PROGRAM, Flags
from claudemesh.cli.daemon import SUPERVISED as SLUG
from claudemesh.cli.dashboard import ask_for_link
from claudemesh.cli.mesh import user_name
from claudemesh.cli.render import escape
from claudemesh.kernel.errors import AlreadyRunning, BrokerUnreachable, ConfigError, DependencyError, NoDaemon
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.home import Home, InstanceLock
from claudemesh.runtime.processes import Supervisor, settled_holder

READY_S: Final = 30.0
DEFAULT_LISTEN: Final = "127.0.0.1:7450"


@click.command(cls=Command)
@click.option(
    "--listen",
    type=parse_listen,
    default=DEFAULT_LISTEN,
    show_default=True,
    metavar="HOST:PORT",
    help="Where the broker listens.",
)
@click.option("--tcp/--no-tcp", default=None, help="Whether the daemon has a port, which the dashboard needs.")
@click.pass_obj
def up(session: Session, *, listen: str, tcp: bool | None) -> int:
    """Run a broker and a daemon on mesh "local" until Ctrl-C, with the dashboard."""
    from claudemesh.cli import enrol  # noqa: PLC0415 - the network's libraries are slow to load
    from claudemesh.daemon import identity  # noqa: PLC0415
    from claudemesh.wire.addresses import parse_broker_url  # noqa: PLC0415

    if session.mesh not in (None, SLUG):
        raise click.UsageError(f"`up` runs the mesh {SLUG!r} and no other: leave --mesh out")
    session.mesh = SLUG
    if not int(listen.rpartition(":")[2]):
        raise click.UsageError("--listen needs a port that the daemon can be told, not 0")
    broker_url = parse_broker_url(f"http://{listen}")
    session.home.ensure()
    clock = SystemClock()
    with InstanceLock(session.home.up_lock), Supervisor(clock, session.out.say) as supervisor:
        _refuse_if_taken(listen)
        _refuse_beside_a_daemon(session.home)
        supervisor.start("broker", [*PROGRAM, "broker", "serve", "--listen", listen])
        # Both write to this terminal too; and a process is started only while there is one thread.
        with session.waiting("starting the broker", is_shared=True):
            is_ready = supervisor.wait_ready("broker", lambda: _broker_answers(broker_url), READY_S)
        if not is_ready:
            return _not_ready(supervisor, "broker")
        name = user_name()
        if SLUG in session.home.meshes():
            name = identity.move_broker(session.home.mesh_dir(SLUG), broker_url).name
        # Also for one that is there: it changes nothing, unless the broker's store was made anew.
        enrol.create(enrol.Enrolment(session.home, name, clock), SLUG, broker_url)
        # Persistent also in CI: it is this mesh's owner, whom the others write to.
        said = Flags(ephemeral=False, tcp=tcp)
        supervisor.start("daemon", [*PROGRAM, "daemon", "up", "--foreground", "--mesh", SLUG, *said.words])
        with session.waiting("starting the daemon", is_shared=True):
            is_ready = supervisor.wait_ready("daemon", lambda: _daemon_answers(session), READY_S)
        if not is_ready:
            return _not_ready(supervisor, "daemon")
        link = ask_for_link(session)["url"]
        document = {
            "mesh": SLUG,
            "broker_url": broker_url,
            "socket": str(session.state_dir / "sock"),
            "dashboard": link,
        }
        lines = [f"mesh {SLUG} is up, broker at {escape(broker_url)}; Ctrl-C stops it"]
        if link is None:
            lines.append("no dashboard: here a daemon has no port unless it is told to, with --tcp")
        else:
            lines.append(f"dashboard, for a moment: {escape(link)}  (later: `claudemesh dashboard`)")
        session.out.document(document, lines)
        supervisor.run()
    return 0


def _refuse_if_taken(listen: str) -> None:
    """Make sure that it is our broker that answers there in a moment, and not somebody else's."""
    import socket  # noqa: PLC0415 - only here

    host, _, port = listen.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), PROBE_S).close()
    except OSError:
        return
    raise ConfigError(f"something listens at {listen} already: stop it, or choose another --listen")


def _refuse_beside_a_daemon(home: Home) -> None:
    """Leave a daemon alone that somebody else started: ours would be started again and again, for its lock."""
    holder = settled_holder(home.mesh_dir(SLUG) / "pid")
    if holder is not None:
        raise AlreadyRunning(
            f"a daemon of mesh {SLUG} runs already, as process {holder or 'unknown'}: "
            "`claudemesh daemon down` stops it, and then `claudemesh up` runs one",
            pid=holder,
        )


def _not_ready(supervisor: Supervisor, name: str) -> int:
    if supervisor.is_stopping:
        return 0
    raise ConfigError(f"the {name} did not come up; what it said stands above")


def _broker_answers(broker_url: str) -> bool:
    from claudemesh.cli import enrol  # noqa: PLC0415 - as above

    try:
        return enrol.exchange(broker_url, "/v1/health")[0] == 200  # noqa: PLR2004 - HTTP's own
    except BrokerUnreachable:
        return False


def _daemon_answers(session: Session) -> bool:
    try:
        with session.client(PROBE_S) as client:
            client.health()
    except (NoDaemon, DependencyError):
        return False
    return True
