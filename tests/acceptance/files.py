"""A look into the files of a daemon or a broker, or a change of them, while it does not run."""

from pathlib import Path
from typing import Any

import apsw


def in_file(path: Path, sql: str, *values: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401  what SQLite holds
    """Run one statement. Not beside a running one: to close the file here would take its locks away."""
    connection = apsw.Connection(str(path))
    try:
        return connection.execute(sql, values).fetchall()
    finally:
        connection.close()
