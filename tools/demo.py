"""`make demo`: what an acknowledgement is worth, on the embedded store, with a real `kill -9`.

Everything happens in a directory of its own that is removed at the end.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO, cast

import apsw

from claudemesh.kernel.admission import Busy, Conflict, Fresh, Replay, Standing
from claudemesh.kernel.errors import IdempotencyConflict, MeshError
from claudemesh.kernel.fingerprint import Fingerprint, Kind, SendRequest, fingerprint_send, prefix
from claudemesh.kernel.outbox import ADMISSION, MACHINE, OutboxState
from claudemesh.runtime import points
from claudemesh.storage.migrate import Migration
from claudemesh.storage.sqlite import Database, Schema
from claudemesh.wire import problem

OUTBOX = Migration(
    1,
    "outbox",
    """
    CREATE TABLE outbox (
      position INTEGER PRIMARY KEY AUTOINCREMENT,
      client_message_id TEXT NOT NULL UNIQUE,
      request_fingerprint BLOB NOT NULL CHECK (length(request_fingerprint) = 32),
      status TEXT NOT NULL,
      body TEXT NOT NULL
    ) STRICT
    """,
)
SCHEMA = Schema(0x64656D6F, (OUTBOX,))
CALLERS = 32


class Colour:
    bold, dim, green, red, off = (
        ("\033[1m", "\033[2m", "\033[32m", "\033[31m", "\033[0m") if sys.stdout.isatty() else [""] * 5
    )


# --- one use case: ask what stands, let the kernel judge, apply -------------------------------------

Send = tuple[str, str]


def accept(connection: apsw.Connection, sends: Sequence[Send]) -> list[str | MeshError]:
    return [accept_one(connection, client_message_id, body) for client_message_id, body in sends]


def accept_one(connection: apsw.Connection, client_message_id: str, body: str) -> str | MeshError:
    presented = fingerprint_send(SendRequest(kind=Kind.TOPIC, ref="deploys", body=body))
    row = connection.execute(
        "SELECT status, request_fingerprint FROM outbox WHERE client_message_id = ?", (client_message_id,)
    ).fetchone()
    standing = Standing(OutboxState(row[0]), Fingerprint(row[1])) if row else None
    match ADMISSION.judge(standing, presented):
        case Fresh():
            connection.execute(
                "INSERT INTO outbox (client_message_id, request_fingerprint, status, body) VALUES (?, ?, ?, ?)",
                (client_message_id, presented, MACHINE.initial, body),
            )
            return "queued"
        case Busy(word) | Replay(word):
            return f"{word}, nothing written"
        case Conflict(word):
            return IdempotencyConflict(conflict=word, fingerprint_prefix=prefix(presented))


# --- the process that gets killed -------------------------------------------------------------------


def serve(path: str) -> None:
    """Accept sends from many callers and print each id once its caller holds the answer."""
    database = Database.open(Path(path), SCHEMA)
    commits = 0

    def count() -> None:
        nonlocal commits
        commits += 1

    points.arm("sqlite.after_commit", count)

    def call(caller: int) -> None:
        for number in range(10**9):
            client_message_id = f"caller-{caller:02}-{number:05}"
            database.write_blocking(accept, (client_message_id, f"build {number} is green"))
            os.write(1, f"{client_message_id} {commits}\n".encode())

    for caller in range(CALLERS):
        threading.Thread(target=call, args=(caller,)).start()


# --- the story --------------------------------------------------------------------------------------


def say(text: str = "") -> None:
    print(text, flush=True)


def step(number: int, text: str) -> None:
    say(f"\n{Colour.bold}{number}. {text}{Colour.off}")


def kill_in_mid_traffic(path: Path, acknowledgements: int) -> list[str]:
    process = subprocess.Popen([sys.executable, __file__, "serve", str(path)], stdout=subprocess.PIPE, text=True)
    said = cast("TextIO", process.stdout)
    lines = [said.readline() for _ in range(acknowledgements)]
    process.send_signal(signal.SIGKILL)
    lines += said.readlines()  # what it had said before it died
    process.wait()
    whole = [line.split() for line in lines if line.endswith("\n")]
    commits = max(int(line[1]) for line in whole)
    say(f"   {len(whole)} sends acknowledged in {commits} commits ({commits / len(whole):.2f} a send)")
    say(f"   process {process.pid} ended by signal {-process.returncode} (kill -9)")
    return [line[0] for line in whole]


def show(database: Database, client_message_id: str, body: str) -> None:
    say(f"   send {client_message_id} {json.dumps(body)}")
    try:
        say(f"     {Colour.green}{database.write_blocking(accept, (client_message_id, body))}{Colour.off}")
    except MeshError as error:
        rendered = json.dumps(problem.render(error), indent=2).replace("\n", "\n     ")
        say(f"     {Colour.red}{error.status}{Colour.off} {Colour.dim}{rendered}{Colour.off}")


def count_rows(connection: apsw.Connection) -> int:
    (count,) = connection.execute("SELECT count(*) FROM outbox").fetchall()[0]
    return int(count)


def tell(folder: Path) -> bool:
    path = folder / "outbox.db"
    say(f"{Colour.bold}claudemesh: an acknowledged send is never lost and never doubled{Colour.off}")
    step(1, f"{CALLERS} callers send at once; the process is killed in mid-traffic")
    acknowledged = kill_in_mid_traffic(path, 3_000)
    step(2, "The next start opens the file and looks")
    with Database.open(path, SCHEMA) as database:
        found = database.read_blocking(
            lambda connection: [row[0] for row in connection.execute("SELECT client_message_id FROM outbox")]
        )
        lost, doubled = set(acknowledged) - set(found), len(found) - len(set(found))
        say(f"   {len(found)} rows: {len(lost)} acknowledged sends lost, {doubled} doubled")
        unheard = len(set(found) - set(acknowledged))
        say(f"   {unheard} were committed but not yet answered: their callers will retry")
        step(3, "A caller that never heard the answer sends again, under the same id")
        show(database, acknowledged[-1], f"build {int(acknowledged[-1][-5:])} is green")
        step(4, "Somebody uses that id for another message")
        show(database, acknowledged[-1], "build 7 is red")
        count = database.read_blocking(
            lambda connection: connection.execute("SELECT count(*) FROM outbox").fetchone()
        )
    is_kept = not lost and not doubled and count == (len(found),)
    say(f"\n{Colour.green}Kept.{Colour.off}" if is_kept else f"\n{Colour.red}Broken.{Colour.off}")
    return is_kept


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2])
    else:
        with tempfile.TemporaryDirectory(prefix="claudemesh-demo-") as name:
            sys.exit(0 if tell(Path(name)) else 1)
