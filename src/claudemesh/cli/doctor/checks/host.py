"""What an agent host has been told of us: the server's entry, the hooks and the skill, read back from its files."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import which
from typing import Final

from claudemesh.cli.doctor.model import Check, Finding, absent, declare, fail, ok, warn
from claudemesh.cli.doctor.scene import Scene
from claudemesh.cli.host.places import Scope
from claudemesh.cli.host.plan import Part
from claudemesh.cli.host.state import Declared, read_state
from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime.extras import can_serve_mcp, how_to_get

_REMEDY: Final = "`claudemesh install` declares it again; what is damaged has to be mended by hand first."

_NOT_TOLD: Final = (
    "no agent host was told of claudemesh; `claudemesh install` does so",
    "no project here tells agents of the relay; `claudemesh install --scope project --agents-md` does so",
)

_ON_PATH: Final = (
    "add the directory of the program to the PATH that the host is started with, or link it into one that is"
)


def _check(part: Part, name: str, what: str) -> Check:
    def look(scene: Scene) -> Iterator[Finding]:
        try:
            declared = read_state(Path.cwd(), scene.environment, has_several=_has_several(scene))
        except (ConfigError, OSError) as error:
            yield warn(
                f"the host's files cannot be looked for: {error}", "set HOME, and run it in a folder that is there"
            )
            return
        meant = [one for one in declared if one.part == part and _is_meant(one, declared)]
        for one in meant:
            yield _judge_twice(one, declared) or _judge(one, scene.environment.get("PATH"))
        if not meant:
            yield absent(_NOT_TOLD[part == "agents"])

    return declare("agent host", name, what, _REMEDY)(look)


def _is_meant(one: Declared, declared: Sequence[Declared]) -> bool:
    """Say whether it should be there: the block in AGENTS.md where it was put, all else where any of it was."""
    if one.part == "agents":
        return one.state != "absent"
    return any(each.scope == one.scope and each.part != "agents" and each.state != "absent" for each in declared)


def _has_several(scene: Scene) -> bool:
    return len(scene.home.meshes()) > 1 and not scene.environment.get("CLAUDEMESH_MESH")


def _judge_twice(one: Declared, declared: Sequence[Declared]) -> Finding | None:
    """Warn of hooks of a project whose user has them as well."""
    ok_in = {each.scope for each in declared if each.part == "hooks" and each.state == "ok"}
    if (one.part, one.scope) != ("hooks", "project") or ok_in != {"user", "project"}:
        return None
    return warn(
        f"{one.detail}, and the user's do so as well: each message is told twice",
        "take one of them back: `claudemesh uninstall --scope user`, or `--scope project`",
        one.scope,
    )


def _judge(one: Declared, path: str | None) -> Finding:
    where: Scope = one.scope
    if one.state != "ok":
        return warn(f"{one.state}: {one.detail}", one.fix or _REMEDY, where)
    if one.part == "server" and not can_serve_mcp():
        return fail(f"{one.detail}, and that cannot start: its SDK is not installed", how_to_get("mcp"), where)
    if one.part == "server" and where == "project" and which("claudemesh", path=path) is None:
        return warn(f"{one.detail}, and no such program is on your PATH", _ON_PATH, where)
    return ok(one.detail, where)


CHECKS: Final = (
    _check(
        "server", "host-entry", "The host knows the MCP server, by a program that is this one, and that can start."
    ),
    _check("hooks", "host-hooks", "The host runs the hooks that say what waits."),
    _check("skill", "host-skill", "The skill that teaches agents is there, and of this version."),
    _check("agents", "host-agents", "Where AGENTS.md has our block, it is of this version and as it was written."),
)
