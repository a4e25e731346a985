"""Disks that are small, and can be filled."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def small_disk(place: Path, size: str = "3m") -> Iterator[Path]:
    """Mount a file system of that size; it needs root, as `make test` has."""
    place.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(file: Path) -> None:
    """Let a file take all the room that its disk has left."""
    with suppress(OSError), file.open("ab", buffering=0) as out:
        while True:
            out.write(b"x" * 4_096)
