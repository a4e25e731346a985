"""What is declared to an agent host, as values: the server's entry, the two hooks, and which of them are ours.

An entry is ours if it starts a program called `claudemesh` with our own first word. A hook is a text for a shell,
so it is ours only if it says what we would write and nothing beside: whatever somebody added to it is theirs, and
would be run. Which program it is, and for which mesh, decides whether it is still the one that is wanted.
"""

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

NAME: Final = "claudemesh"
SERVERS: Final = "mcpServers"
HOOKS: Final = "hooks"
EVENTS: Final = {"SessionStart": "session-start", "UserPromptSubmit": "prompt-submit"}  # the host's word: ours
HOOK_TIMEOUT_S: Final = 5  # the host's own patience: ours is a fraction of it
QUIETLY: Final = " 2>/dev/null || true"
HOME_VARIABLE: Final = "CLAUDEMESH_HOME"

_UNNAMED: Final = 3  # words of a hook that names no mesh
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)

SameProgram = Callable[[str, str], bool]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a declaration should say. Without a mesh any will do; a home is named if it is not the usual one.

    With several meshes joined the server's entry has to name one; the hooks speak of all.
    """

    program: str
    mesh: str | None = None
    home: str | None = None
    same_program: SameProgram = str.__eq__
    has_several: bool = False

    @property
    def _mesh_words(self) -> list[str]:
        return [] if self.mesh is None else ["--mesh", self.mesh]

    def server(self) -> dict[str, Any]:
        return {
            "type": "stdio",
            "command": self.program,
            "args": ["mcp", *self._mesh_words],
            "env": {} if self.home is None else {HOME_VARIABLE: self.home},
        }

    def hook_command(self, event: str) -> str:
        """Return what a host's shell runs: a program that is gone, as on another's machine, stops nobody either."""
        home = [] if self.home is None else [f"{HOME_VARIABLE}={shlex.quote(self.home)}"]
        return " ".join([*home, shlex.join([self.program, "hook", EVENTS[event], *self._mesh_words])]) + QUIETLY

    def hook_group(self, event: str) -> dict[str, Any]:
        command = {"type": "command", "command": self.hook_command(event), "timeout": HOOK_TIMEOUT_S}
        return {"hooks": [command]}

    def explain_server(self, entry: dict[str, Any]) -> str | None:
        """Say in what an entry of ours differs from the one that is wanted; None if in nothing that matters."""
        environment = entry.get("env")
        home = environment.get(HOME_VARIABLE) if isinstance(environment, dict) else None
        words = [str(word) for word in entry["args"]]
        if self.has_several and self.mesh is None and words == ["mcp"]:
            return "it names no mesh, and several are joined: no tool of it would know which"
        return self._explain(entry["command"], words, home)

    def explain_hook(self, command: str) -> str | None:
        home, words = _split(command)
        return self._explain(words[0], [words[1], *words[3:]], home)

    def _explain(self, program: str, words: list[str], home: str | None) -> str | None:
        if not self.same_program(program, self.program):
            return f"it starts {program}, and this is {self.program}"
        if home != self.home:
            return f"it is for the home {home or 'that is usual'}, and this is {self.home or 'the usual one'}"
        named = words[1:3] if self.mesh is None and words[1:2] == ["--mesh"] else self._mesh_words
        if words[1:] != named:
            return f"it is for {' '.join(words[1:]) or 'no mesh by name'}, not {' '.join(named) or 'any'}"
        return None


def is_our_server(entry: object) -> bool:
    if not isinstance(entry, dict):
        return False
    command, words = entry.get("command"), entry.get("args")
    return isinstance(command, str) and _is_ours(command) and isinstance(words, list) and words[:1] == ["mcp"]


def is_our_hook(hook: object, event: str) -> bool:
    command = hook.get("command") if isinstance(hook, dict) else None
    if not isinstance(command, str):
        return False
    home, words = _split(command)
    if words[1:3] != ["hook", EVENTS[event]] or not _is_ours(words[0]) or words[3:4] not in ([], ["--mesh"]):
        return False
    as_we_write = Wanted(words[0], words[4] if len(words) > _UNNAMED + 1 else None, home).hook_command(event)
    return command.removesuffix(QUIETLY) == as_we_write.removesuffix(QUIETLY)


def _is_ours(program: str) -> bool:
    return PurePath(program).name == NAME


def _split(command: str) -> tuple[str | None, list[str]]:
    """Return the home that a shell command is run with, and its words."""
    try:
        words = shlex.split(command.removesuffix(QUIETLY))
    except ValueError:  # an open quote: not ours
        return None, []
    home = None
    while words and _ASSIGNMENT.fullmatch(words[0]):
        name, _, value = words.pop(0).partition("=")
        home = value if name == HOME_VARIABLE else home
    return home, words
