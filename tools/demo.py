"""`make demo`: two peers, a broker, and what an acknowledgement is worth when both ends are killed.

Real processes and the real commands, in a directory of their own that is removed at the end; only the report of the
last step is kept. It stops at the first thing that is not as it should be.
"""

import json
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TextIO, cast

PROGRAM = [sys.executable, "-P", "-m", "claudemesh.cli.main"]
BUILDS = range(42, 50)
HISTORY = "history.jsonl"  # what the peers were told, call by call
REPORT = Path("build", "demo-report.html")
WITHIN_S = 600  # a JVM and a dozen jobs, on a machine that is busy
END_S = 30
INTERRUPTED = 130


class Colour:
    bold, dim, green, off = ("\033[1m", "\033[2m", "\033[32m", "\033[0m") if sys.stdout.isatty() else [""] * 4


def say(text: str = "") -> None:
    print(text, flush=True)


def wrap(line: str) -> str:
    return "\n".join(
        textwrap.wrap(line, 108, initial_indent="   ", subsequent_indent="     ", break_on_hyphens=False)
    )


def step(number: int, text: str) -> None:
    say(f"\n{Colour.bold}{number}. {text}{Colour.off}")


class Peer:
    """Somebody with a home of their own, at a terminal."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.folder = folder
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("CLAUDEMESH", "CI"))}
        said = {"CLAUDEMESH_HOME": str(folder / name), "CLAUDEMESH_HISTORY": str(folder / HISTORY), "NO_COLOR": "1"}
        self.environment = inherited | said

    def run(self, *words: str, expected: int = 0, is_long: bool = False, is_whole: bool = False) -> str:
        """Run a command and return what it says; end the demo if it does not end as it should.

        One that takes long shows its progress while it runs; one that has to be whole hears no Ctrl-C.
        """
        with subprocess.Popen(
            [*PROGRAM, *words],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=None if is_long else subprocess.PIPE,
            text=True,
            start_new_session=is_whole,
        ) as process:
            try:
                said, wrong = process.communicate(timeout=WITHIN_S)
            except BaseException:
                end(process)
                raise
        told = said + (wrong or "")
        if process.returncode != expected:
            raise SystemExit(f"{' '.join(words)} ended with {process.returncode}: {told}")
        return told

    def show(self, *words: str, expected: int = 0, is_long: bool = False) -> str:
        """As `run`, with the command and its answer on the screen."""
        typed = " ".join(f'"{word}"' if " " in word else word for word in words)
        say(f"{Colour.dim}{wrap(f'{self.name}$ claudemesh {typed}')}{Colour.off}")
        told = self.run(*words, expected=expected, is_long=is_long)
        for line in told.splitlines():
            say(wrap(line))
        return told

    def up(self) -> None:
        """Start a daemon, and wait for it also if interrupted: nobody can end one that has only begun."""
        self.run("daemon", "up", "--no-tcp", "--persistent", is_whole=True)

    def ask(self, *words: str) -> dict[str, object]:
        answer: dict[str, object] = json.loads(self.run(*words, "--json"))
        return answer


def end(process: "subprocess.Popen[str]") -> None:
    """Let a command end by itself for a while: it heard the same Ctrl-C, or has to be whole."""
    try:
        process.communicate(timeout=END_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()


def free_address() -> str:
    """Below the ports that the kernel lends to clients: it has to be free again when the broker comes back."""
    while True:
        port = 10_000 + secrets.randbelow(5_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return f"127.0.0.1:{port}"


class Broker:
    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._process: subprocess.Popen[str] | None = None
        self.listen = free_address()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [*PROGRAM, "broker", "serve", "--listen", self.listen],
            env=self._peer.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # a Ctrl-C is for this process, which then ends the other
        )
        told = cast("TextIO", self._process.stdout).readline()
        if "http://" not in told:
            raise SystemExit(f"the broker did not start: {told}")

    def stop(self, number: signal.Signals) -> int:
        if self._process is None:
            return 0
        self._process.send_signal(number)
        self._process.wait(30)
        pid, self._process = self._process.pid, None
        return pid


def set_up(alice: Peer, bob: Peer, broker: Broker) -> None:
    step(1, "A broker, and two peers with a daemon each")
    broker.start()
    alice.show("mesh", "create", "demo", "--broker", f"http://{broker.listen}", "--name", "alice")
    code = str(alice.ask("mesh", "invite", "demo")["code"])
    say(f"   {Colour.dim}bob$ claudemesh mesh join {code[:24]}… --name bob{Colour.off}")
    say(f"   {bob.run('mesh', 'join', code, '--name', 'bob').strip()}")
    for peer in (alice, bob):
        peer.up()


def kill_daemon(peer: Peer) -> int:
    pid = int((Path(peer.environment["CLAUDEMESH_HOME"]) / "daemon" / "demo" / "pid").read_text())
    handle = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    select.select([handle], [], [], 30)  # until it is gone, and with it its lock
    os.close(handle)
    return pid


def prove(operator: Peer) -> None:
    """Show the verdict of Spark, and keep the page."""
    stores = ("broker/broker.db", "alice/daemon/demo/outbox.db", "bob/daemon/demo/inbox.db")
    words = [word for store in stores for word in ("--store", store)]
    files = ("--html", REPORT.name, "--out", REPORT.with_suffix(".json").name)
    operator.show("pipeline", "report", *words, "--history", HISTORY, "--lake", "lake", *files, is_long=True)
    REPORT.parent.mkdir(exist_ok=True)
    shutil.copy(operator.folder / REPORT.name, REPORT)


def tell(alice: Peer, bob: Peer, broker: Broker) -> None:
    say(f"{Colour.bold}claudemesh: an acknowledged send is never lost and never doubled{Colour.off}")
    set_up(alice, bob, broker)

    step(2, "A message, until bob's inbox has acknowledged it")
    alice.show("send", "bob", "build 41 is green", "--id", "build-41", "--wait", "delivered")

    step(3, "The broker is killed. Alice goes on sending: every answer means that it is on her disk")
    say(f"   kill -9 {broker.stop(signal.SIGKILL)} (the broker)")
    for build in BUILDS:
        words = ("send", "bob", f"build {build} is green", "--id", f"build-{build}")
        alice.show(*words) if build in (BUILDS[0], BUILDS[-1]) else alice.run(*words)
        if build == BUILDS[0]:
            say(f"   {Colour.dim}… and so on …{Colour.off}")

    step(4, "Her daemon is killed too, and started again")
    say(f"   kill -9 {kill_daemon(alice)} (alice's daemon)")
    alice.up()
    waiting = cast("list[object]", alice.ask("daemon", "outbox", "list")["rows"])
    say(f"   {len(waiting)} rows in her outbox, {len(BUILDS)} of them still to be sent")

    step(5, "The broker is back")
    broker.start()
    alice.run("send", "bob", "build 50 is green", "--id", "build-50", "--wait", "delivered", "--timeout", "60s")
    bob.show("inbox")
    check(bob)

    step(6, "The same send again, since a caller may not know; and its id for something else")
    alice.show("send", "bob", "build 42 is green", "--id", "build-42")
    alice.show("send", "bob", "build 42 is red", "--id", "build-42", expected=4)

    step(7, "The life of one message, and what each step rests on")
    alice.show("trace", "build-42")


def check(bob: Peer) -> None:
    messages = cast("list[dict[str, object]]", bob.ask("inbox")["messages"])
    expected = [f"build-{build}" for build in (41, *BUILDS, 50)]
    if [message["client_message_id"] for message in messages] != expected:
        raise SystemExit(f"bob's inbox is not what was sent: {messages}")
    say(f"   {Colour.green}{len(expected)} sent, {len(messages)} in bob's inbox: each once, in order{Colour.off}")


def clear(peer: Peer) -> None:
    if (peer.folder / peer.name / "daemon" / "demo").exists():
        peer.run("daemon", "down", is_whole=True)


def run() -> None:
    with tempfile.TemporaryDirectory(prefix="cm-demo-") as name, ExitStack() as stack:
        folder = Path(name)
        alice, bob = Peer(folder, "alice"), Peer(folder, "bob")
        broker = Broker(Peer(folder, "broker"))
        stack.callback(broker.stop, signal.SIGTERM)
        stack.callback(clear, bob)
        stack.callback(clear, alice)
        tell(alice, bob, broker)
        step(8, "What the stores say of all this, and what alice and bob were told, checked on Spark")
        prove(Peer(folder, "operator"))


def main() -> int:
    try:
        run()
    except KeyboardInterrupt:
        say("\nInterrupted. Nothing runs any more, and nothing is left behind.")
        return INTERRUPTED
    say(f"\n{Colour.bold}Kept.{Colour.off} Nothing runs any more, and nothing is left behind but {REPORT}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
