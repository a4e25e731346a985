"""What stores on PostgreSQL rely on: order, groups that share a commit, failures that stay where they belong."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from uuid import uuid4

import asyncpg
import pytest

from claudemesh.kernel.errors import ConfigError, MeshError, NotFound, SchemaTooNew, StoreUnavailable
from claudemesh.storage.migrate import Migration
from claudemesh.storage.postgres import Connection, Database, Endpoint, Schema
from claudemesh.storage.postgres import connection as connections
from tests.services.postgres import Installation, private_postgres

BOUND_S = 30
WITHIN_S = 10  # much less than what a server that does not answer is given
SCHEMA = Schema(
    "notes",
    (Migration(1, "notes", "CREATE TABLE notes.note (id bigint GENERATED ALWAYS AS IDENTITY, text text UNIQUE)"),),
)


@pytest.fixture
async def database(postgres_database: str) -> AsyncIterator[Database]:
    opened = await Database.open(Endpoint(postgres_database), SCHEMA, pool_max=2)
    yield opened
    await opened.aclose()


async def note(connection: Connection, texts: Sequence[str]) -> list[str | MeshError]:
    """Write the texts down, refusing those that begin with a question."""
    outcomes: list[str | MeshError] = []
    for text in texts:
        if text.startswith("?"):
            outcomes.append(NotFound(text))
            continue
        await connection.execute("INSERT INTO notes.note (text) VALUES ($1)", text)
        outcomes.append(f"{text} by {await connection.fetchval('SELECT pg_current_xact_id()::text')}")
    return outcomes


async def written(database: Database) -> list[str]:
    return [row[0] for row in await database.fetch("SELECT text FROM notes.note ORDER BY id")]


async def backend(database: Database) -> int:
    """Return the process that serves the connection which the pool lends next."""
    pid: int = (await database.fetch("SELECT pg_backend_pid()"))[0][0]
    return pid


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Let a process of the server answer nothing, as if its machine were gone."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


# --- writers -------------------------------------------------------------------------------------------------


async def test_what_gathers_while_a_commit_is_under_way_shares_the_next_in_the_order_it_came(
    database: Database,
) -> None:
    writer = database.writer()
    outcomes = await asyncio.gather(*(writer.submit(note, f"n{number}") for number in range(50)))
    assert await written(database) == [f"n{number}" for number in range(50)]
    assert len({outcome.partition(" by ")[2] for outcome in outcomes}) <= 2  # the first alone, or all together


async def test_a_group_carries_no_more_than_its_weight_and_yet_whatever_is_heavier_alone(
    database: Database,
) -> None:
    writer = database.writer(weight_max=10)
    weights = [4, 4, 4, 50, 1]
    submitted = [writer.submit(note, f"n{number}", weight=weight) for number, weight in enumerate(weights)]
    transactions = [outcome.partition(" by ")[2] for outcome in await asyncio.gather(*submitted)]
    assert transactions[0] == transactions[1]
    assert len(set(transactions)) == 4


async def test_a_refusal_that_is_returned_costs_its_neighbours_nothing(database: Database) -> None:
    writer = database.writer()
    answers = await asyncio.gather(*(writer.submit(note, text) for text in ("a", "?", "b")), return_exceptions=True)
    assert isinstance(answers[1], NotFound)
    assert await written(database) == ["a", "b"]


async def test_one_that_fails_unexpectedly_fails_alone(database: Database) -> None:
    writer = database.writer()
    await writer.submit(note, "twice")
    answers = await asyncio.gather(
        *(writer.submit(note, text) for text in ("a", "twice", "b")), return_exceptions=True
    )
    assert [isinstance(answer, Exception) for answer in answers] == [False, True, False]
    assert await written(database) == ["twice", "a", "b"]


async def test_an_item_of_a_group_that_failed_is_run_by_the_operation_for_that(database: Database) -> None:
    async def with_care(_connection: Connection, texts: Sequence[str]) -> list[str]:
        return [f"with care: {text}" for text in texts]

    writer = database.writer()
    await writer.submit(note, "twice")
    assert await writer.submit(note, "twice", alone=with_care) == "with care: twice"


async def test_a_value_that_cannot_be_sent_is_its_callers_mistake_and_no_trouble_of_the_store(
    database: Database,
) -> None:
    writer = database.writer()
    answers = await asyncio.gather(
        *(writer.submit(note, text) for text in ("a", "\x00", "b")), return_exceptions=True
    )
    assert isinstance(answers[1], Exception)
    assert not isinstance(answers[1], StoreUnavailable)
    assert await written(database) == ["a", "b"]


async def test_whoever_waits_when_the_connection_is_cut_is_told_that_the_outcome_is_unknown(
    database: Database,
) -> None:
    writer = database.writer()

    async def cut(connection: Connection, texts: Sequence[str]) -> list[str | MeshError]:
        connection.terminate()
        return await note(connection, texts)

    answers = await asyncio.gather(*(writer.submit(cut, text) for text in ("a", "b")), return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable, StoreUnavailable]
    assert (await writer.submit(note, "c")).startswith("c")  # and the next one connects anew


async def test_a_deadlock_is_tried_again(database: Database) -> None:
    await asyncio.gather(*(database.writer().submit(note, text) for text in ("a", "b")))
    met, are_over = asyncio.Barrier(2), asyncio.Event()
    begun = ended = 0

    async def meet(connection: Connection, first: str, second: str) -> None:
        await connection.execute("UPDATE notes.note SET text = text WHERE text = $1", first)
        await met.wait()  # both hold one now, and want the other's
        await connection.execute("UPDATE notes.note SET text = text WHERE text = $1", second)

    async def update(connection: Connection, orders: Sequence[tuple[str, str]]) -> list[str]:
        nonlocal begun, ended
        begun += 1
        if begun > met.parties:  # again, alone: what the two of them do as they meet once more is not asked here
            await are_over.wait()
            await connection.executemany("UPDATE notes.note SET text = text WHERE text = $1", [("a",), ("b",)])
            return ["done"]
        try:
            await meet(connection, *orders[0])
        finally:
            ended += 1
            if ended == met.parties:
                are_over.set()
        return ["done"]

    one, other = database.writer(), database.writer()
    async with asyncio.timeout(BOUND_S):
        assert await asyncio.gather(one.submit(update, ("a", "b")), other.submit(update, ("b", "a"))) == [
            "done",
            "done",
        ]
    assert begun > met.parties


async def test_a_store_that_closes_finishes_what_was_submitted_and_takes_no_more(postgres_database: str) -> None:
    opened = await Database.open(Endpoint(postgres_database), SCHEMA)
    writer = opened.writer()
    submitted = [writer.submit(note, f"n{number}") for number in range(5)]
    await opened.aclose()
    assert len(await asyncio.gather(*submitted)) == 5
    with pytest.raises(StoreUnavailable):
        await writer.submit(note, "late")


# --- the pool ----------------------------------------------------------------------------------------------


async def test_no_more_connections_are_lent_than_allowed(database: Database) -> None:
    async def count(connection: Connection) -> int:
        await connection.execute("SELECT pg_sleep(0.02)")
        found: int = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type ~ '^client'"
        )
        return found

    assert max(await asyncio.gather(*(database.transact(count) for _ in range(12)))) <= 2


async def test_a_statement_that_takes_too_long_is_ended_and_the_store_goes_on(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STATEMENT_MS", 50)
    hasty = Database(database.endpoint)
    try:
        async with asyncio.timeout(WITHIN_S):
            with pytest.raises(StoreUnavailable):
                await hasty.fetch("SELECT pg_sleep(30)")
        assert [row[0] for row in await hasty.fetch("SELECT 1")] == [1]
    finally:
        await hasty.aclose()


async def test_every_wait_at_the_server_has_an_end(database: Database) -> None:
    ends = {
        "statement_timeout": connections.STATEMENT_MS,
        "lock_timeout": connections.LOCK_MS,
        "idle_in_transaction_session_timeout": connections.FORGOTTEN_MS,
    }
    set_to = await database.fetch("SELECT name, setting::integer FROM pg_settings WHERE name = ANY($1)", [*ends])
    assert dict(set_to) == ends


async def test_a_server_that_answers_nothing_is_unavailable_in_time(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = await backend(database)
    monkeypatch.setattr(connections, "CALLER_S", 0.1)
    with stopped(pid):
        async with asyncio.timeout(WITHIN_S):
            with pytest.raises(StoreUnavailable):
                await database.fetch("SELECT 1")


async def test_a_connection_whose_caller_went_away_in_the_middle_is_lent_to_nobody(database: Database) -> None:
    pid = await backend(database)
    with stopped(pid):  # it never learns that nobody waits any more
        asked = asyncio.ensure_future(database.fetch("SELECT pg_backend_pid()"))
        await asyncio.sleep(0)  # it was sent
        asked.cancel()
        await asyncio.wait([asked])
        async with asyncio.timeout(WITHIN_S):
            assert await backend(database) != pid


async def test_a_connection_that_comes_back_in_a_transaction_is_lent_to_nobody(database: Database) -> None:
    pid = await backend(database)
    await database.fetch("BEGIN")  # as if its end had failed
    assert await backend(database) != pid


async def test_a_commit_waits_for_the_disk_whatever_the_database_is_set_to(
    database: Database, postgres_database: str
) -> None:
    name = re.search(r"/(test_\w+)\?", postgres_database)
    assert name
    await database.fetch(f"ALTER DATABASE {name[1]} SET synchronous_commit = off")
    fresh = Database(Endpoint(postgres_database))
    try:
        assert (await fresh.fetch("SHOW synchronous_commit"))[0][0] == "on"
    finally:
        await fresh.aclose()


async def test_a_server_that_is_not_there_is_unavailable_at_once_and_used_again_when_it_is_back(
    postgres_installation: Installation,
) -> None:
    with private_postgres(postgres_installation) as server:
        opened = await Database.open(Endpoint(server.dsn), SCHEMA)
        writer = opened.writer()
        await writer.submit(note, "before")
        server.crash()
        async with asyncio.timeout(BOUND_S):
            for _ in range(2):  # the connection that was cut, and one that cannot be made
                with pytest.raises(StoreUnavailable):
                    await writer.submit(note, "while")
                with pytest.raises(StoreUnavailable):
                    await opened.fetch("SELECT 1")
        server.start()
        await writer.submit(note, "after")
        assert await written(opened) == ["before", "after"]
        await opened.aclose()


# --- the schema --------------------------------------------------------------------------------------------


async def test_two_that_open_an_empty_database_at_once_migrate_it_once(postgres_database: str) -> None:
    opened = await asyncio.gather(*(Database.open(Endpoint(postgres_database), SCHEMA) for _ in range(4)))
    assert [row[0] for row in await opened[0].fetch("SELECT version FROM notes.schema_migration")] == [1]
    for one in opened:
        await one.aclose()


async def test_a_migration_that_fails_leaves_nothing(postgres_database: str) -> None:
    broken = Schema("notes", (*SCHEMA.migrations, Migration(2, "broken", "CREATE TABLE notes.x (); SELECT 1 / 0")))
    with pytest.raises(asyncpg.DivisionByZeroError):
        await Database.open(Endpoint(postgres_database), broken)
    opened = await Database.open(Endpoint(postgres_database), SCHEMA)
    assert await written(opened) == []
    await opened.aclose()


async def test_a_database_from_a_newer_program_is_refused(postgres_database: str) -> None:
    newer = Schema("notes", (*SCHEMA.migrations, Migration(2, "more", "CREATE TABLE notes.more ()")))
    await (await Database.open(Endpoint(postgres_database), newer)).aclose()
    with pytest.raises(SchemaTooNew):
        await Database.open(Endpoint(postgres_database), SCHEMA)


async def test_a_role_that_may_not_create_schemas_uses_the_one_that_is_there(postgres_database: str) -> None:
    owner = await Database.open(Endpoint(postgres_database), SCHEMA)
    role = f"role_{uuid4().hex}"
    await owner.fetch(f"CREATE ROLE {role} LOGIN")
    try:
        for grant in ("USAGE ON SCHEMA notes", "ALL ON ALL TABLES IN SCHEMA notes"):
            await owner.fetch(f"GRANT {grant} TO {role}")
        plain = await Database.open(Endpoint(postgres_database.replace("postgres@", f"{role}@")), SCHEMA)
        await plain.writer().submit(note, "mine")
        await plain.aclose()
        assert await written(owner) == ["mine"]
    finally:
        await owner.fetch(f"DROP OWNED BY {role}")
        await owner.fetch(f"DROP ROLE {role}")
        await owner.aclose()


async def test_a_database_that_cannot_keep_every_text_is_refused(postgres_database: str) -> None:
    admin = await asyncpg.connect(postgres_database)
    name = f"latin_{uuid4().hex}"
    await admin.execute(f"CREATE DATABASE {name} ENCODING LATIN1 LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    try:
        place = re.sub(r"/test_\w+\?", f"/{name}?", postgres_database)
        with pytest.raises(ConfigError, match="UTF8"):
            await Database.open(Endpoint(place), SCHEMA)
    finally:
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await admin.close()


async def test_a_server_that_does_not_flush_is_refused(postgres_installation: Installation) -> None:
    with private_postgres(postgres_installation, fsync="off") as server, pytest.raises(ConfigError, match="fsync"):
        await Database.open(Endpoint(server.dsn), SCHEMA)


def test_where_a_database_is_can_be_shown_without_its_password() -> None:
    assert "secret" not in repr(Endpoint("postgresql://me:secret@db/mesh"))
