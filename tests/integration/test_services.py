"""The servers that other tests stand on keep what they promise: durable, private, and gone afterwards."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest
import redis

from tests.services.postgres import Installation, Postgres, private_postgres, wheel
from tests.services.redis import ONCE, Redis, private_redis
from tests.services.server import BOUND_S, ServerError, throwaway_directory

# Each names its server and waits until it is killed.
CHILD = """
import signal
from tests.services.{module} import *
with {manager} as server:
    print(server.pid, server.directory, flush=True)
    signal.pause()
"""


def is_running(pid: int) -> bool:
    return Path("/proc", str(pid)).exists()


async def execute(server: Postgres, *statements: str) -> None:
    connection = await asyncpg.connect(server.dsn)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()


async def count_rows(server: Postgres) -> int:
    connection = await asyncpg.connect(server.dsn)
    count: int = await connection.fetchval("SELECT count(*) FROM kept")
    await connection.close()
    return count


async def test_what_postgres_committed_survives_a_crash(postgres_installation: Installation) -> None:
    with private_postgres(postgres_installation) as server:
        await execute(server, "CREATE TABLE kept (id int)", "INSERT INTO kept SELECT generate_series(1, 1000)")
        server.crash()
        server.start()
        assert await count_rows(server) == 1000


async def test_what_postgres_had_not_committed_does_not_survive_a_crash(
    postgres_installation: Installation,
) -> None:
    with private_postgres(postgres_installation) as server:
        await execute(server, "CREATE TABLE kept (id int)")
        connection = await asyncpg.connect(server.dsn)
        await connection.execute("BEGIN; INSERT INTO kept VALUES (1)")
        server.crash()
        connection.terminate()
        server.start()
        assert await count_rows(server) == 0


async def test_postgres_flushes_what_it_commits(postgres_server: Postgres) -> None:
    connection = await asyncpg.connect(postgres_server.dsn)
    settings = [await connection.fetchval(f"SHOW {name}") for name in ("fsync", "synchronous_commit")]
    await connection.close()
    assert settings == ["on", "on"]


async def test_postgres_answers_on_loopback_to_its_password_only(postgres_server: Postgres) -> None:
    connection = await asyncpg.connect(postgres_server.tcp_dsn)
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(postgres_server.tcp_dsn, password="guessed")  # noqa: S106 - and it is wrong


async def test_two_postgres_servers_share_nothing() -> None:
    with private_postgres(wheel()) as one, private_postgres(wheel()) as other:
        await execute(one, "CREATE TABLE kept (id int)")
        await execute(other, "CREATE TABLE kept (id int)", "INSERT INTO kept VALUES (1)")
        assert (await count_rows(one), await count_rows(other)) == (0, 1)


async def test_postgres_runs_from_a_directory_that_others_may_not_enter(tmp_path: Path) -> None:
    """As in a clone below the home of root, who must not run it."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "site").symlink_to(wheel().root)
    installation = Installation("closed", closed / "site", wheel().programs, wheel().parts)
    with private_postgres(installation) as server:
        await execute(server, "SELECT 1")


def test_redis_runs_a_script_as_one_step(redis_server: Redis) -> None:
    """A script that another client could see half done would show unequal counters."""
    move = "redis.call('INCR', KEYS[1]) for _ = 1, 10000 do end return redis.call('INCR', KEYS[2])"
    look = "return {redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2])}"
    with redis.Redis.from_url(redis_server.url) as mover, redis.Redis.from_url(redis_server.tcp_url) as onlooker:
        for turn in range(1, 101):
            # Both are on their way before either is answered.
            with mover.client() as moving, onlooker.client() as looking:
                moving.connection.send_command("EVAL", move, 2, "atomic:left", "atomic:right")
                looking.connection.send_command("EVAL", look, 2, "atomic:left", "atomic:right")
                left, right = looking.connection.read_response()
                assert left == right
                assert moving.connection.read_response() == turn


def test_what_redis_acknowledged_survives_a_crash() -> None:
    with private_redis() as server:
        with redis.Redis.from_url(server.url) as client:
            for number in range(100):
                client.rpush("kept", number)
        server.crash()
        server.start()
        with redis.Redis.from_url(server.url) as client:
            assert client.llen("kept") == 100


def test_redis_flushes_what_it_acknowledges(redis_server: Redis) -> None:
    with redis.Redis.from_url(redis_server.url, decode_responses=True) as client:
        settings = client.config_get("append*")
    assert (settings["appendonly"], settings["appendfsync"]) == ("yes", "always")


def test_redis_answers_on_loopback_to_its_password_only(redis_server: Redis) -> None:
    with (
        redis.Redis(host="127.0.0.1", port=redis_server.port, retry=ONCE) as stranger,
        pytest.raises(redis.AuthenticationError),
    ):
        stranger.ping()


def test_two_redis_servers_share_nothing() -> None:
    with private_redis() as one, private_redis() as other:
        with redis.Redis.from_url(one.url) as client:
            client.set("key", "value")
        with redis.Redis.from_url(other.url) as client:
            assert client.get("key") is None


def test_a_postgres_server_is_gone_after_its_use(postgres_installation: Installation) -> None:
    with private_postgres(postgres_installation) as server:
        pid = server.pid
        assert is_running(pid)
    assert not is_running(pid)
    assert not server.directory.exists()


def test_a_redis_server_is_gone_after_its_use() -> None:
    with private_redis() as server:
        pid = server.pid
        assert is_running(pid)
    assert not is_running(pid)
    assert not server.directory.exists()


@pytest.mark.parametrize(
    ("module", "manager"),
    [("postgres", "private_postgres(wheel())"), ("redis", "private_redis()")],
    ids=["postgres", "redis"],
)
def test_a_server_does_not_outlive_a_test_run_that_was_killed(module: str, manager: str) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD.format(module=module, manager=manager)], stdout=subprocess.PIPE, text=True
    )
    with child:
        pid, directory = child.stdout.readline().split()
        server = os.pidfd_open(int(pid))  # readable once the process has ended, whoever its parent is by then
        child.send_signal(signal.SIGKILL)
        ended, _, _ = select.select([server], [], [], BOUND_S)
        os.close(server)
        assert ended
    with throwaway_directory():  # the next one to start cleans up
        assert not Path(directory).exists()


def test_a_server_that_cannot_start_says_why() -> None:
    with throwaway_directory() as directory:
        server = Redis(directory)
        (directory / "redis.conf").write_text("nonsense yes")
        with pytest.raises(ServerError, match="nonsense"):
            server.start()
