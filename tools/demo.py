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
    process = subprocess.Popen(
        [sys.executable, __file__, "serve", str(path)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a Ctrl-C is for this process, which then ends the other
    )
    said = cast("TextIO", process.stdout)
    try:
        lines = [said.readline() for _ in range(acknowledgements)]
    finally:
        process.send_signal(signal.SIGKILL)
    lines += said.readlines()  # what it had said before it died
    process.wait()
    whole = [line.split() for line in lines if line.endswith("\n")]
    commits = max(int(line[1]) for line in whole)
    say(f"   {len(whole)} sends acknowledged in {commits} commits ({commits / len(whole):.2f} a send)")
    say(f"   process {process.pid} ended by signal {-process.returncode} (kill -9)")
    return [line[0] for line in whole]


def send(database: Database, client_message_id: str, body: str) -> tuple[str, str]:
    """Return the answer in a word and as it is shown."""
    try:
        word = database.write_blocking(accept, (client_message_id, body))
    except MeshError as error:
        rendered = json.dumps(problem.render(error), indent=2).replace("\n", "\n     ")
        return error.code, f"{Colour.red}{error.status}{Colour.off} {Colour.dim}{rendered}{Colour.off}"
    return word, f"{Colour.green}{word}{Colour.off}"


def read_ids(database: Database) -> list[str]:
    return database.read_blocking(
        lambda connection: [str(row[0]) for row in connection.execute("SELECT client_message_id FROM outbox")]
    )


def tell(folder: Path) -> bool:
    path = folder / "outbox.db"
    say(f"{Colour.bold}claudemesh: an acknowledged send is never lost and never doubled{Colour.off}")
    step(1, f"{CALLERS} callers send at once; the process is killed in mid-traffic")
    acknowledged = kill_in_mid_traffic(path, 3_000)
    step(2, "The next start opens the file and looks")
    with Database.open(path, SCHEMA) as database:
        found = read_ids(database)
        lost = set(acknowledged) - set(found)
        say(f"   {len(found)} rows: {len(lost)} acknowledged sends lost")
        say(f"   {len(set(found) - set(acknowledged))} were committed, but their callers never heard so")
        step(3, "Every caller sends its last message again, since it cannot know, under the same id")
        last = sorted({client_message_id[:-6]: client_message_id for client_message_id in sorted(found)}.values())
        answers = [send(database, again, f"build {int(again[-5:])} is green") for again in last]
        same = [word for word, _ in answers if word == "queued, nothing written"]
        doubled = len(read_ids(database)) - len(found)
        say(f"   {len(same)} of {len(last)} were told: {answers[0][1]}; {doubled} doubled")
        step(4, "Somebody uses one of those ids for another message")
        say(f'   send {last[0]} "build 7 is red"')
        code, shown = send(database, last[0], "build 7 is red")
        say(f"     {shown}")
        is_kept = not lost and len(same) == len(last) and code == "idempotency_key_reused"
        is_kept = is_kept and sorted(read_ids(database)) == sorted(found)
    say(f"\n{Colour.green}Kept.{Colour.off}" if is_kept else f"\n{Colour.red}Broken.{Colour.off}")
    return is_kept


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["serve"]:
        serve(arguments[1])
        return 0
    try:
        with tempfile.TemporaryDirectory(prefix="claudemesh-demo-") as name:
            return 0 if tell(Path(name)) else 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
