"""The tutorial is run as a reader would: two terminals, its commands in its order, and what it shows is what comes.

A block belongs to the terminal that the comment above it names. Its lines with a `$` are typed there, one when the
one before has ended, and what stands below each must be printed, but for ids and instants. A command that does not
end by itself (`--follow`) goes on; a block `goes on` is what is printed meanwhile.
"""

import os
import pty
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.ports import own_address
from tests.shown import shape

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/tutorials/first-message.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^<!-- terminal: (\w+)(?:, ([\w\s-]+))? -->\n```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROMPT = "\x02ready\x03"  # what no program prints
# That a job of the shell began or ended; that the broker is not up yet.
MEANWHILE = re.compile(r"^(?:\[\d+\].*|claudemesh: nothing listens at .* yet; waiting for it)\n?", re.MULTILINE)
# What is asked once more, as a reader would: whether a receipt has come by now, or a connection.
AGAIN = {"claudemesh trace": None, "claudemesh daemon up": "claudemesh daemon status"}
WITHIN_S = 60
CTRL_C = b"\x03"


class Terminal:
    """A shell on a terminal of its own, typed into and read from."""

    def __init__(self, home: Path) -> None:
        ours, theirs = pty.openpty()
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "XDG_RUNTIME_DIR": str(home),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "PS1": PROMPT,
        }
        shell = ["bash", "--norc", "--noprofile", "--noediting", "-i"]
        self._shell = subprocess.Popen(
            shell, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=ROOT, start_new_session=True
        )
        os.close(theirs)
        self._ours = ours
        self._text = ""
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.wait_for(lambda text: PROMPT in text)
        self.run("stty -echo cols 500")

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._ours, 65536)
            except OSError:  # the shell is gone, and its terminal with it
                return
            with self._news:
                self._text += piece.decode(errors="replace").replace("\r\n", "\n")
                self._news.notify_all()

    def wait_for(self, is_there: Callable[[str], bool]) -> str:
        """Return, and forget, what was printed, as soon as it is what is waited for."""
        deadline = time.monotonic() + WITHIN_S
        with self._news:
            while not is_there(MEANWHILE.sub("", self._text)):
                assert self._news.wait(deadline - time.monotonic()), f"this came: {self._text!r}"
            text, self._text = MEANWHILE.sub("", self._text), ""
        return text

    def type(self, line: str) -> None:
        os.write(self._ours, line.encode() + b"\n")

    def run(self, line: str) -> str:
        """Type a line; return what was printed until the shell is ready for the next."""
        self.type(line)
        return self.wait_for(lambda text: PROMPT in text).replace(PROMPT, "")

    def interrupt(self) -> None:
        os.write(self._ours, CTRL_C)
        self.wait_for(lambda text: PROMPT in text)

    def close(self) -> None:
        self._shell.kill()
        self._shell.wait(WITHIN_S)
        self._reader.join(WITHIN_S)
        os.close(self._ours)


@contextmanager
def a_home_that_ends(home: Path) -> Iterator[Path]:
    """Give a home whose processes end with it, also if the page was not followed to its end."""
    home.mkdir()
    try:
        yield home
    finally:
        for pid in processes_of(home):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(home, ignore_errors=True)


def processes_of(home: Path) -> list[int]:
    """Return the processes that were started with this home."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and folder.name != str(os.getpid()):
            try:
                is_ours = f"HOME={home}\0".encode() in (folder / "environ").read_bytes()
            except OSError:  # it has ended, or is somebody else's
                continue
            if is_ours:
                found.append(int(folder.name))
    return found


def typed(block: str) -> list[tuple[str, str]]:
    """Return the commands of a block, each with what is shown below it."""
    return [(command, shown) for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)]


def elsewhere(command: str, address: str, code: str) -> str:
    """Say the same with a port of our own, and with the invitation that was printed."""
    there = command.replace("claudemesh broker serve", f"claudemesh broker serve --listen {address}")
    return there.replace("mesh create demo", f"mesh create demo --broker http://{address}").replace("CODE", code)


WAITED = re.compile(
    r"^claudemesh: .+ \(\d+ s\)\n", re.MULTILINE
)  # said where a command takes a second, as here it may


def is_so(came: str, shown: str) -> bool:
    return shape(WAITED.sub("", came)) == shape(shown)


def run_until(terminal: Terminal, line: str, shown: str) -> str:
    """Run a command; one that shows how things stand is asked again until they stand as shown."""
    end = time.monotonic() + WITHIN_S
    came = terminal.run(line)
    asked = next((again or line for start, again in AGAIN.items() if line.startswith(start)), None)
    while asked and not is_so(came, shown) and time.monotonic() < end:
        came = terminal.run(asked)
    return came


@pytest.mark.timeout(WITHIN_S * 4)
def test_the_tutorial_does_what_it_says_and_leaves_nothing_behind(tmp_path: Path) -> None:
    address, code, ran = own_address(), "", 0
    with ExitStack() as stack, a_home_that_ends(tmp_path / "home") as home:
        terminals: dict[str, Terminal] = {}
        for name, how, block in BLOCK.findall(PAGE):
            if name not in terminals:
                terminals[name] = Terminal(home)
                stack.callback(terminals[name].close)
            terminal = terminals[name]
            if how == "goes on":
                expected = shape(block)
                terminal.wait_for(lambda text, expected=expected: shape(text) == expected)
            elif how:
                terminal.interrupt()
            for command, shown in typed(block):
                line, ran = elsewhere(command, address, code), ran + 1
                if line.endswith("--follow"):
                    terminal.type(line)
                    continue
                came = run_until(terminal, line, shown)
                assert is_so(came, shown), (command, came)
                code = came.split()[0] if "mesh invite" in command else code
        assert ran > 20
        assert len(processes_of(home)) == len(terminals)  # the two shells, and nothing else
        assert list(home.iterdir()) == []


def test_every_block_of_the_tutorial_is_run() -> None:
    assert PAGE.count("```console") == len(BLOCK.findall(PAGE))
    assert {how for _, how, _ in BLOCK.findall(PAGE)} == {"", "goes on", "after Ctrl-C"}


def test_a_tutorial_that_shows_something_else_is_noticed() -> None:
    assert is_so("running  demo as process 7, broker connected\n", "running  demo as process 1, broker connected\n")
    assert not is_so("queued  greeting-1\n", "delivered  greeting-1\n")
    assert not is_so("", "delivered  greeting-1\n")
