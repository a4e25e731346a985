"""`make interop`: clients that are not ours, at `claudemesh mcp`. Needs Node and npm; nothing is left behind.

The MCP Inspector's command line lists, calls and reads on a real mesh. The `claude` command line adds the server in
an empty home, where nobody is logged in, and says whether it connected. Each stops the run if it is not so.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PROGRAM = Path(sys.executable).with_name("claudemesh")
INSPECTOR = "@modelcontextprotocol/inspector"
CLAUDE = "@anthropic-ai/claude-code"
WITHIN_S = 300
TOOLS = 12
PROMPTS = 3


def main() -> int:
    if shutil.which("npm") is None or shutil.which("node") is None:
        print("make interop needs Node and npm", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="claudemesh-interop-") as folder:
        place = Path(folder)
        install(place)
        with mesh(place / "mesh") as home:
            inspect(place, home)
            claude(place, home)
    print("make interop: everything passed")
    return 0


def install(place: Path) -> None:
    say(f"installing {INSPECTOR} and {CLAUDE}")
    run(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", f"--prefix={place}", INSPECTOR, CLAUDE])
    for name in (INSPECTOR, CLAUDE):
        found = json.loads((place / "node_modules" / name / "package.json").read_text(encoding="utf-8"))
        say(f"  {name} {found['version']}")


# --- a mesh ----------------------------------------------------------------------------------------------


class mesh:  # noqa: N801 - used as a function
    """A broker and a daemon of its own."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def __enter__(self) -> Path:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._home.mkdir(mode=0o700)
        environment = {**os.environ, "CLAUDEMESH_HOME": str(self._home)}
        self._running = subprocess.Popen(
            [PROGRAM, "up", "--listen", f"127.0.0.1:{port}", "--json"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._running.stdout is not None  # noqa: S101 - it was asked for
        check("a mesh is up", bool(self._running.stdout.readline()))
        return self._home

    def __exit__(self, *_: object) -> None:
        self._running.send_signal(signal.SIGINT)
        try:
            self._running.wait(WITHIN_S)
        finally:
            self._running.kill()


# --- the inspector ---------------------------------------------------------------------------------------


def inspect(place: Path, home: Path) -> None:
    say("the MCP Inspector")

    def ask(method: str, *words: str) -> dict[str, Any]:
        command = [place / "node_modules" / ".bin" / "mcp-inspector", "--cli", "-e", f"CLAUDEMESH_HOME={home}"]
        found: dict[str, Any] = json.loads(run([*command, PROGRAM, "mcp", "--method", method, *words]))
        return found

    def use(tool: str, *arguments: str) -> dict[str, Any]:
        words = [word for argument in arguments for word in ("--tool-arg", argument)]
        return ask("tools/call", "--tool-name", tool, *words)

    tools = ask("tools/list")["tools"]
    check(f"{TOOLS} tools, each with hints and both schemas", len(tools) == TOOLS and all(map(is_described, tools)))
    status = use("status")["structuredContent"]
    check("status: nothing waits, and the daemon is connected", status["nothing_waits"])
    me = status["daemon"]["member"]
    sent = use("send", f"to={me}", "message=hello", "idempotency_key=interop-1", "wait=delivered")
    check("send: delivered", sent["structuredContent"]["state"] == "delivered")
    again = use("send", f"to={me}", "message=hello", "idempotency_key=interop-1")
    check("send again: replayed", again["structuredContent"]["replayed"])
    inbox = use("inbox")["structuredContent"]
    check("inbox: one message, unread", (inbox["unread"], inbox["messages"][0]["body"]) == (1, "hello"))
    refused = use("send", "to=nobody-here", "message=hello")
    check(
        "an error is an answer, with its code",
        refused["isError"] and "code=unknown_destination" in refused["content"][0]["text"],
    )
    check("resources", len(ask("resources/list")["resources"]) > 0)
    templates = ask("resources/templates/list")["resourceTemplates"]
    check("resource templates", len(templates) > len(ask("resources/list")["resources"]))
    read = ask("resources/read", "--uri", "claudemesh://inbox")["contents"][0]
    check("a resource is read", json.loads(read["text"])["messages"][0]["body"] == "hello")
    check(f"{PROMPTS} prompts", len(ask("prompts/list")["prompts"]) == PROMPTS)
    prompt = ask("prompts/get", "--prompt-name", "hand_over_work")
    check("a prompt is rendered", "may be reported as done" in str(prompt))


def is_described(tool: dict[str, Any]) -> bool:
    hints = {"readOnlyHint", "destructiveHint", "idempotentHint"}
    return hints <= {*tool["annotations"]} and all(tool[name]["type"] == "object" for name in SCHEMAS)


SCHEMAS = ("inputSchema", "outputSchema")


# --- the claude command line -----------------------------------------------------------------------------


def claude(place: Path, home: Path) -> None:
    say("the claude command line, in an empty home and without a login")
    empty = place / "empty"
    empty.mkdir()
    environment = {"HOME": str(empty), "PATH": os.environ["PATH"]}

    def ask(*words: str) -> str:
        command = [place / "node_modules" / ".bin" / "claude", "mcp", *words]
        return run(command, cwd=empty, env=environment)

    entry = ["-e", f"CLAUDEMESH_HOME={home}", "--", str(PROGRAM), "mcp"]
    check("mcp add", "claudemesh" in ask("add", "--scope", "user", "claudemesh", *entry))
    listed = ask("list")
    check("mcp list: connected", "claudemesh" in listed and "Connected" in listed)
    check("mcp get: connected", "Connected" in ask("get", "claudemesh"))
    ask("remove", "--scope", "user", "claudemesh")
    check("mcp remove", "Connected" not in ask("list"))


# --- shared ------------------------------------------------------------------------------------------------


def run(command: list[Any], **more: Any) -> str:  # noqa: ANN401 - passed through
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, timeout=WITHIN_S, **more
    )
    if done.returncode:
        sys.exit(
            f"interop: {' '.join(map(str, command[:4]))} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    return str(done.stdout)


def check(what: str, is_so: bool) -> None:  # noqa: FBT001 - reads as it is meant
    if not is_so:
        sys.exit(f"interop: NOT SO: {what}")
    say(f"  ok  {what}")


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
