"""`daemon`: started, asked, stopped. One runs per mesh; the lock in its state directory says which process it is.

Without `--foreground` the daemon is a child that outlives the command, which returns when the daemon answers, or
with the daemon's own error if it ends before that.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from claudemesh.cli.command import Group, Session, parse_duration
from claudemesh.cli.render import escape
from claudemesh.kernel.errors import (
    AlreadyRunning,
    ConfigError,
    DeadlineExceeded,
    DependencyError,
    MeshError,
    NoDaemon,
    NotFound,
)
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.home import InstanceLock, lock_holder, read_timings, write_private
from claudemesh.runtime.patience import wait_until

if TYPE_CHECKING:
    from claudemesh.daemon.settings import DaemonSettings

START_S: Final = 30.0
STOP_S: Final = 30.0
PROBE_S: Final = 2.0
LINK_S: Final = 1.0
SUPERVISED: Final = "local"  # the mesh whose daemon `claudemesh up` keeps running
EPHEMERAL_TTL_S: Final = 86_400.0
OUTPUT: Final = "daemon.out"  # of a daemon without a terminal: why it did not start
CATCHING_UP: Final = "catching up"
COMING: Final = frozenset({"connecting", CATCHING_UP})  # links that a moment more may make ready

# -P: without it Python looks for modules in the working directory first, which may be anybody's.
PROGRAM: Final = (sys.executable, "-P", "-m", "claudemesh.cli.main")


class Flags(NamedTuple):
    """What may be said of a start; None is for the surroundings to decide."""

    ephemeral: bool | None = None
    tcp: bool | None = None
    ttl: float | None = None

    @property
    def words(self) -> list[str]:
        said = {True: "--ephemeral", False: "--persistent", None: ""}[self.ephemeral]
        tcp = {True: "--tcp", False: "--no-tcp", None: ""}[self.tcp]
        ttl = [] if self.ttl is None else ["--ttl", f"{self.ttl:g}s"]
        return [word for word in (said, tcp) if word] + ttl


def flags(command: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.option("--ephemeral/--persistent", default=None, help="A key for this run only, or the member's."),
        click.option(
            "--ttl", type=parse_duration, metavar="TIME", help="How long an ephemeral daemon runs. [default: 24h]"
        ),
        click.option("--tcp/--no-tcp", default=None, help="Also listen on 127.0.0.1, for callers with the token."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.group(cls=Group, lazy={"outbox": "outbox:outbox"})
def daemon() -> None:
    """Local daemon: up, down, status, restart, reload, logs, outbox, and its identity."""


@daemon.command()
@click.option("--foreground", is_flag=True, help="Stay until stopped, and log to standard error too.")
@click.option("--quiet", is_flag=True, hidden=True, help="Log to the file only.")
@flags
@click.pass_obj
def up(session: Session, /, *, foreground: bool, quiet: bool, **said: Any) -> int:  # noqa: ANN401 - as `flags` names them
    """Start the mesh's daemon."""
    if foreground:
        from claudemesh.daemon.app import run  # noqa: PLC0415 - all of the daemon
        from claudemesh.dashboard.app import dashboard_of  # noqa: PLC0415 - as above

        def ready(sock: Path) -> None:
            document = {"mesh": session.slug, "pid": os.getpid(), "socket": os.fspath(sock)}
            session.out.document(document, [f"listening at {escape(sock)}"])

        settings = build_settings(session, Flags(**said), log_to_stderr=not quiet)
        return run(settings, ready, dashboard_of(session.home))
    _start(session, Flags(**said))
    return 0


@daemon.command()
@click.pass_obj
def down(session: Session) -> None:
    """Stop the mesh's daemon, and wait until it has. What is queued is sent after the next start."""
    pid = stop_daemon(session)
    supervisor = supervisor_of(session)
    said = f"stopped (it was process {pid})" if pid else "it was not running"
    session.out.document({"mesh": session.slug, "stopped": pid is not None, "pid": pid}, [said])
    if supervisor:
        session.out.say(f"`claudemesh up` starts it again: to stop both, stop that one (process {supervisor})")


@daemon.command()
@flags
@click.pass_obj
def restart(session: Session, /, **said: Any) -> None:  # noqa: ANN401 - as `flags` names them
    """Stop the mesh's daemon and start it again."""
    asked = Flags(**said)
    build_settings(session, asked, log_to_stderr=False)  # with what it would refuse, the one that runs goes on
    supervisor = supervisor_of(session)
    if supervisor is None:
        stop_daemon(session)
        _start(session, asked)
        return
    if asked.words:
        raise click.UsageError(
            f"`claudemesh up` (process {supervisor}) keeps this daemon running, with the flags that it was given: "
            "stop that one, and start it with others"
        )
    stop_daemon(session)
    _await_answer(session, lambda: False, session.state_dir / "daemon.log")  # of the next one, which `up` starts


@daemon.command()
@click.pass_obj
def status(session: Session) -> None:
    """Show how the mesh's daemon is."""
    with session.client(PROBE_S) as client:
        _show(session, client.health())


@daemon.command()
@click.pass_obj
def reload(session: Session) -> None:
    """Have the daemon read its configuration again, without losing its connection."""
    build_settings(session, Flags(), log_to_stderr=False)  # what it would refuse, it is not told to read
    with session.client(PROBE_S) as client:
        try:
            answer = client.request("POST", "/v1/reload", {})[1]
        except NotFound as error:
            raise ConfigError("this daemon cannot reload: `claudemesh daemon restart`") from error
    later = f"; after a restart: {', '.join(answer['needs_restart'])}" if answer.get("needs_restart") else ""
    session.out.document(answer, [f"in force now: {', '.join(answer.get('applied', [])) or 'nothing new'}{later}"])


@daemon.command()
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written.")
@click.option(
    "--lines",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    metavar="N",
    help="Begin with the last so many.",
)
@click.pass_obj
def logs(session: Session, *, follow: bool, lines: int) -> None:
    """Show the daemon's log."""
    from claudemesh.cli.logs import show_log  # noqa: PLC0415 - only here

    show_log(session.out, session.state_dir / "daemon.log", lines, follow=follow)


# --- its identity --------------------------------------------------------------------------------------


@daemon.command("rotate-token")
@click.pass_obj
def rotate_token(session: Session) -> None:
    """Make a new local token; a running daemon takes the old one for a minute more."""
    path = session.state_dir / "local_token"
    try:
        with session.client(PROBE_S) as client:
            client.request("POST", "/v1/rotate-token", {})
    except NoDaemon:
        from claudemesh.runtime.tokens import fresh_token  # noqa: PLC0415 - only here

        with InstanceLock(session.state_dir / "pid"):
            write_private(path, f"{fresh_token()}\n".encode())
    except NotFound as error:
        raise ConfigError("this daemon cannot take a new token while it runs: stop it first") from error
    session.out.document({"mesh": session.slug, "file": str(path)}, [f"the new token is in {escape(path)}"])


@daemon.command("accept-host")
@click.pass_obj
def accept_host(session: Session) -> None:
    """Say that this state directory belongs to this host now, and that nothing runs on the old one any more."""
    from claudemesh.daemon import identity  # noqa: PLC0415 - only here

    host = identity.read_host()
    identity.record_host(session.state_dir, host)
    document = {"mesh": session.slug, "fingerprint": host.fingerprint, "made_of": host.made_of}
    session.out.document(document, [f"{escape(session.slug)} belongs to this host now"])


@daemon.command()
@click.pass_obj
def recover(session: Session) -> None:
    """Save what can be read of a damaged outbox into a new one, and keep the damaged file."""
    from claudemesh.cli.recover import recover_outbox  # noqa: PLC0415 - only here

    with session.waiting("reading the outbox"):
        saved = recover_outbox(session.state_dir, SystemClock())
    if saved is None:
        document: dict[str, Any] = {"mesh": session.slug, "damaged": False}
        session.out.document(document, ["the outbox is sound: there is nothing to recover"])
        return
    document = {"mesh": session.slug, "damaged": True, "saved": saved.saved, "missing": saved.missing}
    lines = [
        f"{saved.saved} rows saved; {saved.missing} numbers before the last of them could not be read",
        f"the damaged file is kept: {escape(saved.kept_at)}",
        "an id that is missing is no longer known: sent again, it would be taken for a new message",
    ]
    session.out.document(document | {"kept_at": str(saved.kept_at)}, lines)


@daemon.command()
@click.option("--name", metavar="PEER", help="What the others call the copy. [default: the old name and -2]")
@click.option(
    "--code", metavar="CODE", help="An invite; needed unless the old key may invite. `-` reads standard input."
)
@click.pass_obj
def remint(session: Session, name: str | None, code: str | None) -> None:
    """Make a copied state directory a member of its own, with its own key; the original keeps the old one."""
    from claudemesh.cli.remint import remint as run  # noqa: PLC0415 - only here

    given = sys.stdin.read() if code == "-" else code
    joined, kept = run(session.state_dir, name, given, SystemClock())
    document = {"mesh": joined.slug, "name": joined.name, "member_id": joined.member_id, "kept_at": str(kept)}
    session.out.document(document, [f"this copy is {escape(joined.name)} now; what it had is in {escape(kept)}"])


# --- starting and stopping ---------------------------------------------------------------------------


def build_settings(session: Session, said: Flags, *, log_to_stderr: bool) -> "DaemonSettings":
    """Put together what the file, the surroundings and the flags say; the flags win."""
    from claudemesh.daemon.settings import Config, DaemonSettings  # noqa: PLC0415 - not for `status`
    from claudemesh.runtime.settings import load  # noqa: PLC0415

    around, timings = session.surroundings, read_timings()
    is_ephemeral = around.ephemeral if said.ephemeral is None else said.ephemeral
    if said.ttl is not None and not is_ephemeral:
        raise click.UsageError("--ttl is for an --ephemeral key")
    config = load(Config, session.state_dir / "config.toml")
    return DaemonSettings(
        state_dir=session.state_dir,
        config=config,
        tcp=(around.tcp and config.ipc.tcp) if said.tcp is None else said.tcp,
        ephemeral_ttl_ms=int((said.ttl or EPHEMERAL_TTL_S) * 1000) if is_ephemeral else None,
        runtime_dir=around.runtime_dir,
        log_to_stderr=log_to_stderr,
        lease_ttl_ms=timings.lease_ttl_ms,
        ping_interval_ms=timings.ping_interval_ms,
        stale_pong_ms=timings.stale_pong_ms,
    )


def foreground_words(slug: str, said: Flags) -> list[str]:
    """Return the command of a daemon without a terminal, whose last words are its error as JSON."""
    return [*PROGRAM, "daemon", "up", "--foreground", "--quiet", "--json", "--mesh", slug, *said.words]


def _start(session: Session, said: Flags) -> None:
    from claudemesh.runtime.processes import settled_holder, start_detached  # noqa: PLC0415 - as above

    state_dir = session.state_dir
    holder = settled_holder(state_dir / "pid")
    if holder is not None:
        raise AlreadyRunning(f"the daemon of {session.slug} is process {holder or 'unknown'}", pid=holder)
    output = state_dir / OUTPUT
    child = start_detached(foreground_words(session.slug, said), output)
    if not _await_answer(session, lambda: child.poll() is not None, output):
        raise _why(output, child.returncode)


def _await_answer(session: Session, is_over: Callable[[], bool], output: Path) -> bool:
    """Wait until the daemon that is being started answers, and show how it is; False if it ended instead."""
    health: dict[str, Any] = {}

    def answers() -> bool:
        try:
            with session.client(PROBE_S) as client:
                health.update(client.health())
        except (NoDaemon, DependencyError):
            return is_over()
        return True

    with session.waiting("starting the daemon"):
        is_there = wait_until(answers, START_S)
    if not is_there:
        raise DeadlineExceeded(
            f"the daemon does not answer after {START_S:g} s; it may still be starting: see {output}"
        )
    if not health:
        return False
    # It is up without its broker too; but a moment later it is known whether there is one.
    wait_until(lambda: answers() and health.get("link") not in COMING, LINK_S)
    _show(session, health)
    return True


def _why(output: Path, code: int) -> MeshError:
    """Return the error that the child ended with, from what it said last."""
    import json  # noqa: PLC0415 - only when something went wrong

    from claudemesh.wire import problem  # noqa: PLC0415

    said = output.read_text(encoding="utf-8", errors="replace").splitlines()
    for line in reversed(said):
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if isinstance(told, dict) and "code" in told and "title" in told:
            return problem.parse(int(told.get("status", 500)), told)
    return MeshError(
        f"the daemon ended with {code}: {said[-1] if said else 'it said nothing'} (all of it: {output})"
    )


def supervisor_of(session: Session) -> int | None:
    """Return the process of `claudemesh up` (0 if it has not said yet), if it keeps this mesh's daemon running."""
    return lock_holder(session.home.up_lock) if session.slug == SUPERVISED else None


def stop_daemon(session: Session) -> int | None:
    """Stop the daemon and wait until its lock is free; return its pid, None if there was none."""
    from claudemesh.runtime.processes import signal_holder, wait_released  # noqa: PLC0415 - as above

    lock = session.state_dir / "pid"
    pid = signal_holder(lock, signal.SIGTERM)
    if pid is None:
        return None
    with session.waiting("waiting for the daemon to stop"):
        is_gone = wait_released(lock, pid, STOP_S)
    if not is_gone:
        raise DeadlineExceeded(f"process {pid} was told to stop and still runs after {STOP_S:g} s", pid=pid)
    return pid


def _show(session: Session, health: dict[str, Any]) -> None:
    pid = lock_holder(session.state_dir / "pid")
    document = {"running": True, "pid": pid, "socket": os.fspath(session.state_dir / "sock"), **health}
    link = "connected" if health.get("connected") else health.get("link")
    broker = link if link in ("connected", CATCHING_UP) else f"not connected: {escape(link)}"
    lines = [
        f"{session.out.state('running')}  {escape(session.slug)} as process {pid}, broker {broker}",
        f"waiting to be sent: {escape(health.get('queue_depth'))}, under way: {escape(health.get('inflight'))}",
    ]
    if health.get("dead"):
        lines.append(f"dead letters: {escape(health['dead'])}, see `claudemesh daemon outbox list --failed`")
    session.out.document(document, lines)
