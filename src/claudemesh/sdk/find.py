"""Where the daemon is: which home, which mesh, which socket."""

from dataclasses import dataclass
from pathlib import Path

from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime.home import Home, read_surroundings


@dataclass(frozen=True, slots=True)
class Place:
    slug: str
    sock: Path
    history: Path | None = None  # where to write down what is asked and answered


def find(mesh: str | None, home: Path | str | None, history: Path | str | None = None) -> Place:
    """Find the mesh that is meant: the one named, else by CLAUDEMESH_MESH, else the only one that was joined.

    ConfigError, naming those that were joined, if that leads nowhere. Whether a daemon runs there is not looked at.
    """
    surroundings = read_surroundings()
    at = Home(surroundings.home if home is None else Path(home).expanduser().absolute())
    joined = at.meshes()
    asked = mesh or surroundings.mesh
    if asked is None and len(joined) == 1:
        asked = joined[0]
    if asked is None and joined:
        raise ConfigError(
            f"which mesh? Name one of {', '.join(joined)}, in the program or in CLAUDEMESH_MESH", meshes=joined
        )
    if asked is None:
        raise ConfigError(f"{at.root} has no mesh: `claudemesh mesh create` or `claudemesh mesh join`", meshes=[])
    state_dir = at.mesh_dir(asked)  # refuses what is no slug
    if asked not in joined:
        raise ConfigError(
            f"you have not joined a mesh {asked!r}; joined: {', '.join(joined) or 'none'}", meshes=joined
        )
    return Place(asked, state_dir / "sock", surroundings.history if history is None else Path(history))
