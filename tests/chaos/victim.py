"""A process that writes and says what it was told, for tests that hurt it.

    python -m tests.chaos.victim FILE WRITERS WRITES [POINT:COUNT | leave]

Each writer stores texts one after the other and prints a line after each answer: `ok KEY`, `full KEY` or
`unknown KEY`. Nothing is printed before the answer, so a line `ok` is an acknowledgement somebody holds. With POINT
the process kills itself, as `kill -9` would, when it reaches that point for the COUNTth time; with `leave` it ends
when its writers do, without closing anything.
"""

import os
import signal
import sys
import threading
from pathlib import Path

from claudemesh.kernel.errors import StoreFull, StoreUnavailable
from claudemesh.runtime import points
from claudemesh.storage.sqlite import Database
from tests.contract.engine.shelf import SCHEMA, put


def say(word: str, key: str) -> None:
    os.write(1, f"{word} {key}\n".encode())  # one write: a line is there whole or not at all


def write_texts(database: Database, writer: int, writes: int) -> None:
    for number in range(writes):
        key = f"{writer}-{number}"
        try:
            database.write_blocking(put, (key, key * 50))
        except StoreFull:
            say("full", key)
        except StoreUnavailable:
            say("unknown", key)
            return
        else:
            say("ok", key)


def arm(point: str) -> None:
    name, count = point.rsplit(":", 1)
    left = int(count)

    def count_down() -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    points.arm(name, count_down)


def main(path: str, writers: str, writes: str, ending: str = "close") -> None:
    database = Database.open(Path(path), SCHEMA)
    if ":" in ending:
        arm(ending)
    threads = [threading.Thread(target=write_texts, args=(database, n, int(writes))) for n in range(int(writers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if ending != "leave":
        database.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
