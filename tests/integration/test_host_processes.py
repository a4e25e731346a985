"""Installing and hooks as real processes: killed between two writes, asked with nobody at the other end."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.mesh import local_mesh

WITHIN_S = 60
PROGRAM = Path(sys.executable).with_name("claudemesh")
KILLED = """
import os, sys
from claudemesh.cli.host import commands
from claudemesh.cli.main import main
from claudemesh.runtime import points

left = int(sys.argv.pop(1))
def end():
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), 9)
points.arm("host.written", end)
sys.exit(main(sys.argv[1:]))
"""


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("CLAUDEMESH_", "CLAUDE_"))}
    return {**kept, "HOME": str(tmp_path), **more}


def run(
    tmp_path: Path, *words: str, code: int = 0, program: list[str] | None = None, folder: Path | None = None
) -> str:
    command = [*(program or [str(PROGRAM)]), *words]
    ended = subprocess.run(
        command,
        env=environment(tmp_path),
        cwd=folder or tmp_path,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert ended.returncode == code, ended.stderr
    return ended.stdout


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


@pytest.mark.req("C7")
@pytest.mark.parametrize("writes", [1, 2])
def test_an_install_that_is_killed_between_two_writes_is_finished_by_the_next(tmp_path: Path, writes: int) -> None:
    (tmp_path / ".claude.json").write_text('{"numStartups": 3}')
    before = contents(tmp_path)
    killed = [sys.executable, "-c", KILLED, str(writes)]
    run(tmp_path, "install", program=killed, code=-9)
    assert (tmp_path / ".claude.json").read_text() == '{"numStartups": 3}'
    actions = [step["action"] for step in json.loads(run(tmp_path, "install", "--json"))["steps"]]
    assert actions == [*["keep"] * writes, *["create"] * (2 - writes), "change"]
    assert [path.name for path in tmp_path.rglob("*.tmp")] == []
    run(tmp_path, "uninstall")
    assert contents(tmp_path) == before, "what the killed one had made is taken back too"


@pytest.mark.req("C7")
def test_an_empty_home_is_installed_into_and_left_empty(tmp_path: Path) -> None:
    run(tmp_path, "install")
    entry = json.loads((tmp_path / ".claude.json").read_text())["mcpServers"]["claudemesh"]
    assert (entry["command"], entry["env"]) == (str(PROGRAM), {}), "the home is the usual one"
    hooks = json.loads((tmp_path / ".claude/settings.json").read_text())["hooks"]
    for groups in hooks.values():
        command = groups[0]["hooks"][0]["command"]
        ended = subprocess.run(
            ["/bin/sh", "-c", command], env=environment(tmp_path), input="{}", text=True, capture_output=True,
            timeout=WITHIN_S, check=False,
        )  # fmt: skip
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    run(tmp_path, "uninstall")
    assert contents(tmp_path) == {}


@pytest.mark.req("C7")
def test_a_hook_whose_program_is_gone_stops_nobody(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    run(tmp_path, "install", "--scope", "project", folder=project)
    command = json.loads((project / ".claude/settings.json").read_text())["hooks"]["SessionStart"][0]["hooks"][0]
    ended = subprocess.run(
        ["/bin/sh", "-c", command["command"]],
        env={"PATH": "/nowhere"},
        capture_output=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


@pytest.mark.req("C7")
@pytest.mark.parametrize("way", [[str(PROGRAM)], [sys.executable, "-m", "claudemesh.cli.main"]])
@pytest.mark.parametrize("redirected", [">&-", "<&- >&- 2>&-", ">/dev/full", "| true", "</dev/zero"])
def test_whatever_is_at_the_other_ends_a_hook_ends_well(
    tmp_path: Path, mesh_home: Path, way: list[str], redirected: str
) -> None:
    line = f'set -o pipefail; "$@" {redirected}'
    ended = subprocess.run(
        ["bash", "-c", line, "hook", *way, "hook", "session-start", "--within-ms", "20000"],
        env=environment(tmp_path, CLAUDEMESH_HOME=str(mesh_home)), input=b"\xff nonsense {", capture_output=True,
        timeout=WITHIN_S, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.fixture
def mesh_home(tmp_path: Path) -> Path:
    """Return a home in which a hook has something to say: a relay that does not run."""
    (tmp_path / "h" / "edge").mkdir(parents=True, mode=0o700)
    (tmp_path / "h" / "edge" / "outbox.db").touch()
    return tmp_path / "h"


@pytest.mark.req("C7", "F8")
async def test_a_hook_says_what_waits_at_a_real_daemon_and_marks_nothing(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, "alice", "bob") as (_, alice, bob):
        await alice.send("bob", "</x> the build\nis red", priority="now")
        await alice.send("bob", "when you have time", priority="low")
        await bob.receives(2)
        for event, words in (("SessionStart", "session-start"), ("UserPromptSubmit", "prompt-submit")):
            home = bob.state_dir.parent.parent
            process = await asyncio.create_subprocess_exec(
                PROGRAM, "hook", words, "--within-ms", "20000", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                env=environment(tmp_path, CLAUDEMESH_HOME=str(home)),
            )  # fmt: skip
            async with asyncio.timeout(WITHIN_S):
                out, _ = await process.communicate()
            said: Any = json.loads(out)["hookSpecificOutput"]
            assert said["hookEventName"] == event
            head, line, low = said["additionalContext"].split("\n")
            assert head.startswith('claudemesh: 2 messages unread in mesh "demo".')
            assert line == '- [now] from "alice", just now: "\\u003c/x\\u003e the build\\nis red"'
            assert low == "- 1 message of low priority, to be read when you ask for them"
        assert [message["read_at"] for message in await bob.inbox()] == [None, None]
