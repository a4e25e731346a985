"""Numbered migrations, forward only.

A folder holds `0001_what_it_does.sql`, `0002_…`, without gaps. The version of a database is the number of the last
one applied. Which ones are due is decided here; running them in one transaction is the backend's part.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources.abc import Traversable

from claudemesh.kernel.errors import SchemaTooNew

_FILE = re.compile(r"(?P<version>\d{4})_(?P<name>[a-z0-9_]+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: str


def load_migrations(folder: Traversable) -> tuple[Migration, ...]:
    found = []
    for file in folder.iterdir():
        if file.name.endswith(".sql"):
            match = _FILE.fullmatch(file.name)
            if match is None:
                raise ValueError(f"{file.name} is not called NNNN_what_it_does.sql")
            found.append(Migration(int(match["version"]), match["name"], file.read_text(encoding="utf-8")))
    found.sort(key=lambda migration: migration.version)
    check_migrations(found)
    return tuple(found)


def in_order(*migrations: Migration) -> tuple[Migration, ...]:
    """Give them new numbers, 1 to n: for a database that holds the tables of more than one part."""
    return tuple(replace(migration, version=place) for place, migration in enumerate(migrations, start=1))


def check_migrations(migrations: Sequence[Migration]) -> None:
    versions = [migration.version for migration in migrations]
    if versions != list(range(1, len(versions) + 1)):
        raise ValueError(f"migrations are not numbered 1, 2, 3, … without a gap: {versions}")


def plan(version: int, migrations: Sequence[Migration]) -> Sequence[Migration]:
    """Return what is due on a database of this version; one from a newer program is refused, not guessed at."""
    if not 0 <= version <= len(migrations):  # a version beyond 31 bits is read back as a negative one
        raise SchemaTooNew(
            f"the file has schema version {version}, this program knows up to {len(migrations)}: "
            "use the newer program, or a backup made before it ran",
            schema_version=version,
            schema_version_known=len(migrations),
        )
    return migrations[version:]
