"""What an agent host has been told, read back from its files: for `doctor`, and for `install` to know what to do.

for one in read_state(Path.cwd(), environment):
    one.part, one.scope, one.state, one.path, one.detail, one.fix
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from claudemesh.cli.host.blocks import DamagedBlockError
from claudemesh.cli.host.declared import Wanted
from claudemesh.cli.host.files import read
from claudemesh.cli.host.places import Place, Scope, derive_wanted, is_users, project_place, user_place
from claudemesh.cli.host.plan import PARTS, WHAT, Part, look
from claudemesh.cli.host.splice import NotUnderstoodError
from claudemesh.kernel.errors import ConfigError

State = Literal["ok", "absent", "stale", "damaged"]


@dataclass(frozen=True, slots=True)
class Declared:
    """One part in one scope. `stale` is another program, version or mesh; `damaged` is what we cannot read."""

    part: Part
    scope: Scope
    state: State
    path: Path
    detail: str
    fix: str | None  # what to do about it, None if nothing is


def read_state(
    folder: Path,
    environment: Mapping[str, str],
    *,
    scopes: tuple[Scope, ...] = ("user", "project"),
    mesh: str | None = None,
    has_several: bool = False,
) -> tuple[Declared, ...]:
    """Return how every part stands in these scopes, for the project that a folder is in. Nothing is changed.

    How many meshes were joined here is a user's affair: a project's files are for many machines. A project whose
    files are the user's is left out: what is right for the one would be wrong for the other.
    """
    found: list[Declared] = []
    for scope in scopes:
        place = user_place(environment) if scope == "user" else project_place(folder)
        if scope == "project" and is_users(place, environment):
            continue
        wanted = derive_wanted(scope, environment, mesh)
        found += read_place(place, replace(wanted, has_several=has_several and scope == "user"))
    return tuple(found)


def read_place(place: Place, wanted: Wanted) -> list[Declared]:
    return [_read_part(part, place, wanted) for part in PARTS if part in place.files]


def _read_part(part: Part, place: Place, wanted: Wanted) -> Declared:
    path = place.files[part]
    again = f"claudemesh install --scope {place.scope}" + (" --agents-md" if part == "agents" else "")
    again += " --mesh SLUG" if wanted.has_several else ""

    def declared(state: State, detail: str, fix: str | None) -> Declared:
        return Declared(part, place.scope, state, path, detail, fix)

    try:
        seen = look(part, read(path, place.root, follow=True).text, wanted)
    except (NotUnderstoodError, DamagedBlockError) as error:
        return declared("damaged", str(error), f"mend {path} by hand, then `{again}`")
    except ConfigError as error:
        return declared("damaged", error.detail or str(error), f"look at {path}, then `{again}`")
    if seen.state == "foreign":
        return declared("stale", seen.detail, f"if {WHAT[part]} may be replaced: `{again} --force`")
    if seen.state == "ok":
        return declared("ok", seen.detail, None)
    return declared(seen.state, seen.detail, f"`{again}`")
