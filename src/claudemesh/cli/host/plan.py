"""What installing and uninstalling would change: texts in, texts out, and nothing is touched here.

There are up to four parts, each in a file of its own. `look` says how a part stands, `put` how its text is to be,
and `drop` how it is to be without us. A text that is not understood raises NotUnderstoodError or DamagedBlockError,
whatever was asked; what is somebody else's raises ForeignError unless it is forced.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from claudemesh.cli.host import splice
from claudemesh.cli.host.blocks import drop_block, find_block, is_untouched, put_block, read_block, read_skill
from claudemesh.cli.host.declared import EVENTS, HOOKS, NAME, SERVERS, Wanted, is_our_hook, is_our_server
from claudemesh.cli.host.splice import NotUnderstoodError, Path

Part = Literal["skill", "agents", "hooks", "server"]
State = Literal["ok", "absent", "stale", "foreign"]

# The order in which they are written: what names our program comes last, when all that it needs is there.
PARTS: Final[tuple[Part, ...]] = ("skill", "agents", "hooks", "server")
WHAT: Final[dict[Part, str]] = {
    "skill": "the skill file",
    "agents": "the block in AGENTS.md",
    "hooks": "the hooks",
    "server": "the MCP server's entry",
}

_ENTRY: Final = (SERVERS, NAME)


class ForeignError(ValueError):
    """Somebody else's text stands where ours is to be."""


@dataclass(frozen=True, slots=True)
class Look:
    state: State
    detail: str


@dataclass(frozen=True, slots=True)
class Edit:
    """A part's text as it is to be, None for no file; and which containers were made for it."""

    text: str | None
    made: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Made:
    """What an earlier install made in a file: the whole of it, or containers in it."""

    file: bool = True
    containers: tuple[Path, ...] | None = None  # None: nobody knows; then what is empty without us was ours


def look(part: Part, text: str | None, wanted: Wanted) -> Look:
    if text is None:
        return Look("absent", "there is no such file")
    if part == "server":
        return _look_server(text, wanted)
    if part == "hooks":
        return _look_hooks(text, wanted)
    return _look_skill(text) if part == "skill" else _look_agents(text)


def put(part: Part, text: str | None, wanted: Wanted, *, force: bool = False) -> Edit:
    """Return the text with our part in it, as wanted. If it stands there already, that is the very same text."""
    seen = look(part, text, wanted)
    if text is not None and seen.state == "ok":
        return Edit(text)
    if seen.state == "foreign" and not force:
        raise ForeignError(seen.detail)
    if part == "server":
        return _put_server(text, wanted, is_ours=seen.state == "stale")
    if part == "hooks":
        return _put_hooks(text, wanted)
    return Edit(read_skill()) if part == "skill" else Edit(put_block(text or "", read_block()))


def drop(part: Part, text: str | None, made: Made, *, force: bool = False) -> Edit:
    """Return the text without our part; None if the file was ours alone. What is not ours stays."""
    if text is None:
        return Edit(None)
    if part == "server":
        return _drop_server(text, made)
    if part == "hooks":
        return _drop_hooks(text, made)
    if part == "agents":
        left = drop_block(text)
        return Edit(None if not left and left != text and made.file else left)
    return Edit(None if force or is_untouched(text) else text)


# --- the MCP server's entry ---------------------------------------------------------------------------


def _look_server(text: str, wanted: Wanted) -> Look:
    splice.parse(text)
    entry = splice.get(text, _ENTRY)
    if not splice.has(text, _ENTRY):
        return Look("absent", f"it has no {SERVERS}.{NAME}")
    if not is_our_server(entry):
        return Look("foreign", f"{SERVERS}.{NAME} is not an entry that starts `claudemesh mcp`")
    differs = wanted.explain_server(entry)
    if differs is not None:
        return Look("stale", differs)
    return Look("ok", f"starts {entry['command']} {' '.join(map(str, entry['args']))}")


def _put_server(text: str | None, wanted: Wanted, *, is_ours: bool) -> Edit:
    entry = wanted.server()
    if not is_ours:
        after, made = splice.put(text or splice.EMPTY, _ENTRY, entry)
        return Edit(after, tuple(made))
    after = text or splice.EMPTY
    standing: dict[str, Any] = splice.get(after, _ENTRY)
    environment = standing.get("env")
    if isinstance(environment, dict):  # what its owner added stays
        kept = {name: value for name, value in environment.items() if name != "CLAUDEMESH_HOME"}
        entry["env"] = {**kept, **entry["env"]}
    for name, value in entry.items():
        if standing.get(name) != value:
            after, _ = splice.put(after, (*_ENTRY, name), value)
    return Edit(after)


def _drop_server(text: str, made: Made) -> Edit:
    splice.parse(text)
    if not is_our_server(splice.get(text, _ENTRY)):
        return Edit(text)
    return _emptied(splice.drop(text, _ENTRY), made, [(SERVERS,)])


# --- the hooks ------------------------------------------------------------------------------------------


def _ours(text: str, event: str) -> list[tuple[Path, str]]:
    """Return where our hooks for an event stand, and what each runs."""
    groups = splice.get(text, (HOOKS, event))
    if not splice.has(text, (HOOKS, event)):
        return []
    if not isinstance(groups, list):
        raise NotUnderstoodError(f"'{HOOKS}.{event}' is not a list")
    return [
        ((HOOKS, event, number, "hooks", place), hook["command"])
        for number, group in enumerate(groups)
        if isinstance(group, dict) and isinstance(group.get("hooks"), list)
        for place, hook in enumerate(group["hooks"])
        if is_our_hook(hook, event)
    ]


def _look_hooks(text: str, wanted: Wanted) -> Look:
    splice.parse(text)
    found = {event: _ours(text, event) for event in EVENTS}
    missing = [event for event, ours in found.items() if not ours]
    if len(missing) == len(EVENTS):
        return Look("absent", f"it has no hook of ours for {' and '.join(missing)}")
    if missing:
        return Look("stale", f"it has no hook of ours for {missing[0]}")
    for ours in found.values():
        for _, command in ours:
            differs = wanted.explain_hook(command)
            if differs is not None:
                return Look("stale", differs)
    return Look("ok", f"for {' and '.join(EVENTS)}")


def _put_hooks(text: str | None, wanted: Wanted) -> Edit:
    after = text or splice.EMPTY
    made: list[Path] = []
    for event in EVENTS:
        ours = _ours(after, event)
        for where, command in ours:
            if wanted.explain_hook(command) is not None:
                after, _ = splice.put(after, (*where, "command"), wanted.hook_command(event))
        if not ours:
            after, more = splice.append(after, (HOOKS, event), wanted.hook_group(event))
            made += more
    return Edit(after, tuple(made))


def _drop_hooks(text: str, made: Made) -> Edit:
    splice.parse(text)
    after = text
    for event in EVENTS:
        for where, _ in reversed(_ours(text, event)):  # the last first: the places of the others stay
            group = where[:3]
            alone = len(splice.get(after, group)["hooks"]) == 1
            after = splice.drop(after, group if alone else where)
    if after == text:
        return Edit(text)
    return _emptied(after, made, [(HOOKS, event) for event in EVENTS] + [(HOOKS,)])


def _emptied(text: str, made: Made, ours: Sequence[Path]) -> Edit:
    """Take out the containers that were made for us and hold nothing now, and the file if it is such a one."""
    known = ours if made.containers is None else [path for path in ours if path in made.containers]
    after = splice.drop_empty(text, known)
    return Edit(None if made.file and not splice.parse(after) else after)


# --- the texts for agents -------------------------------------------------------------------------------


def _look_skill(text: str) -> Look:
    if text == read_skill():
        return Look("ok", "of this version")
    if is_untouched(text):
        return Look("stale", "of another version")
    return Look(
        "foreign", "it is not as any version of ours wrote it: somebody has changed it, or it is another skill"
    )


def _look_agents(text: str) -> Look:
    standing = find_block(text)
    if standing is None:
        return Look("absent", "it has no claudemesh block")
    is_ours = standing.replace("\r\n", "\n") == read_block()
    return Look("ok", "of this version") if is_ours else Look("stale", "the block is not that of this version")
