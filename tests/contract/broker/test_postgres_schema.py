"""How a database gets its schema: once, whoever comes first, and never by a program that is too old for it."""

import asyncio
import subprocess
import sys
from importlib.resources import files

import asyncpg
import pytest

from claudemesh.broker.parcels import render_delivery
from claudemesh.broker.stores.postgres import PostgresStores
from claudemesh.kernel.errors import SchemaTooNew
from tests.contract.broker.backends import BOUND_S, PostgresBackend, batch, dm, settle, ulids
from tests.doubles import ManualClock
from tests.services.postgres import Postgres

# All that a schema is, in words that two databases share: names and definitions, and no numbers of their own.
CATALOGUE = {
    "columns": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
          a.attgenerated, pg_get_expr(d.adbin, d.adrelid), l.collname
        FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
        LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        LEFT JOIN pg_collation AS l ON l.oid = a.attcollation
        WHERE c.relnamespace = 'mesh'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped
        ORDER BY c.relname, a.attnum""",
    "relations": """
        SELECT relname, relkind, reloptions, relpersistence FROM pg_class
        WHERE relnamespace = 'mesh'::regnamespace ORDER BY relname""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'mesh'::regnamespace ORDER BY 1, 2""",
    "indexes": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'mesh' ORDER BY 1, 2",
    "views": "SELECT viewname, definition FROM pg_views WHERE schemaname = 'mesh' ORDER BY 1",
    "functions": """
        SELECT proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'mesh'::regnamespace
        ORDER BY 1""",
    "triggers": """
        SELECT tgrelid::regclass::text, pg_get_triggerdef(oid) FROM pg_trigger
        WHERE NOT tgisinternal ORDER BY 1, 2""",
}


async def open_stores(dsn: str) -> PostgresStores:
    return await PostgresStores.open(dsn, clock=ManualClock(), mint=ulids.ulid, render=render_delivery)


async def catalogue(dsn: str) -> dict[str, list[tuple[object, ...]]]:
    connection = await asyncpg.connect(dsn)
    try:
        return {what: [tuple(row) for row in await connection.fetch(sql)] for what, sql in CATALOGUE.items()}
    finally:
        await connection.close()


async def test_the_schema_file_and_the_migrations_make_the_same(
    postgres_server: Postgres, postgres_database: str
) -> None:
    by_file = postgres_server.create_database(f"schema_file_{ulids.ulid().lower()}")
    await PostgresBackend(by_file).execute((files("claudemesh.broker.stores.postgres") / "schema.sql").read_text())
    await (await open_stores(postgres_database)).aclose()
    left, right = await catalogue(by_file), await catalogue(postgres_database)
    assert all(right[what] for what in CATALOGUE if what != "triggers")
    for what in CATALOGUE:
        assert left[what] == right[what]


def test_two_processes_that_open_an_empty_database_at_once_both_succeed(postgres_database: str) -> None:
    program = (
        "import asyncio, sys; from tests.contract.broker.test_postgres_schema import open_stores\n"
        "async def main():\n"
        "    print('ready', flush=True); sys.stdin.readline()\n"
        "    stores = await open_stores(sys.argv[1]); print(await stores.upkeep.meshes()); await stores.aclose()\n"
        "asyncio.run(main())"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, postgres_database],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.communicate(timeout=BOUND_S)[0] for process in processes] == ["[]\n", "[]\n"]
    assert [process.returncode for process in processes] == [0, 0]


async def test_a_database_of_a_newer_program_is_refused_and_left_as_it_is(postgres_database: str) -> None:
    await (await open_stores(postgres_database)).aclose()
    await PostgresBackend(postgres_database).execute(
        "INSERT INTO mesh.schema_migration (version, name) VALUES (2, 'from_the_future')"
    )
    before = await catalogue(postgres_database)
    with pytest.raises(SchemaTooNew):
        await open_stores(postgres_database)
    assert await catalogue(postgres_database) == before


async def test_a_role_that_may_create_nothing_uses_a_schema_that_is_there(postgres_database: str) -> None:
    await (await open_stores(postgres_database)).aclose()
    role = f"plain_{ulids.ulid().lower()}"
    await PostgresBackend(postgres_database).execute(
        f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA mesh TO {role};"
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA mesh TO {role};",
    )
    stores = await open_stores(postgres_database.replace("postgres@", f"{role}@"))
    async with asyncio.timeout(BOUND_S):
        town = await settle(stores, "alice", "bob")
        assert len(await stores.accepts.accept(batch(town["alice"], dm("1", "bob")))) == 1
        assert (await stores.seats.beat()).is_keeper
        assert await stores.upkeep.check() == []
    await stores.aclose()
