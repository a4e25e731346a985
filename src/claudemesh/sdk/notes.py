"""What a home still has to answer for: a note for each message of a queue that it handed over to a ledger.

A note is a private file in `handed-over/` of the mesh's state directory, whole and durable or not there. It is of
one lease of the queue, so that two workers of a home never touch each other's.
"""

from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from claudemesh.kernel.errors import MeshError
from claudemesh.runtime.home import ensure_private_dir, read_private, write_private

FOLDER: Final = "handed-over"


class Note(msgspec.Struct, frozen=True):
    """That a lease of a queue handed its message over, or was about to."""

    ledger_id: str
    run_id: str
    broker_message_id: str
    lease_token: int  # of the queue
    to: str

    @property
    def name(self) -> str:
        return f"{_stem(self.broker_message_id)}.{self.lease_token}.json"


def write(state_dir: Path, note: Note) -> None:
    ensure_private_dir(state_dir / FOLDER)
    write_private(state_dir / FOLDER / note.name, msgspec.json.encode(note))


def drop(state_dir: Path, note: Note) -> None:
    (state_dir / FOLDER / note.name).unlink(missing_ok=True)


def read_all(state_dir: Path, warn: Callable[[str], None]) -> Iterator[Note]:
    for path in sorted((state_dir / FOLDER).glob("*.json")):
        try:
            yield msgspec.json.decode(read_private(path), type=Note)
        except FileNotFoundError:  # another worker of this home has just answered it
            continue
        except (msgspec.DecodeError, MeshError) as error:
            warn(f"{path} is not a note of a message that was handed over: {error}")


def is_noted(state_dir: Path, broker_message_id: str) -> bool:
    """Say whether a message was handed over from here and not answered yet."""
    folder = state_dir / FOLDER
    return folder.is_dir() and any(folder.glob(f"{_stem(broker_message_id)}.*.json"))


def _stem(broker_message_id: str) -> str:
    """Return a name for a message: an id is what a broker says, and no part of a path."""
    return sha256(broker_message_id.encode(errors="replace")).hexdigest()[:32]
