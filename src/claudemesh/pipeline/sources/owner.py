"""Whose outbox or inbox a file is: what the broker said when its member joined, kept beside it."""

import json
from pathlib import Path
from typing import Final

_MEMBERSHIP: Final = "membership.json"


def read_owner(store: Path) -> list[tuple[str, str]]:
    """Return the ULIDs of mesh and member, or nothing: a file that was copied elsewhere does not say."""
    try:
        said = json.loads((store.parent / _MEMBERSHIP).read_text(encoding="utf-8"))
        mesh, member = str(said["mesh_id"]), str(said["member_id"])
        (mesh + member).encode()  # what is not Unicode is nobody's
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [(mesh, member)]
