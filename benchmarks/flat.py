"""What an accept on PostgreSQL costs when the tables have grown: named only, since filling takes minutes.

`python -m benchmarks 1 flat` compares an empty database with one of five million messages that were delivered to
eight each, and a mesh of one topic with one of a thousand that are posted to in turn; five times each, in turns.
"""

from collections.abc import Sequence
from statistics import median

import asyncpg

from benchmarks.broker import TOPIC, furnish, run_fast
from benchmarks.postgres import BATCH, measure_store, opened
from benchmarks.report import say_rate, say_ratio, scaled
from claudemesh.broker.model import Sender
from claudemesh.broker.stores.postgres import PostgresStores
from tests.services.postgres import Postgres, private_postgres, wheel

HISTORY = 5_000_000
TOPICS = 1_000
REPEATS = 5

_FILL = (
    """INSERT INTO mesh.message_history
       SELECT $1, g, 'F' || lpad(g::text, 25, '0'), $2, 'f' || lpad(g::text, 25, '0'), 'topic', 0, NULL
       FROM generate_series($3::bigint, $4::bigint) AS g""",
    """INSERT INTO mesh.client_message_dedupe
       SELECT $2, 'f' || lpad(g::text, 25, '0'), $1, 'accepted', sha256(g::text::bytea),
         'F' || lpad(g::text, 25, '0'), NULL, true, 0, NULL
       FROM generate_series($3::bigint, $4::bigint) AS g""",
    """INSERT INTO mesh.topic_message
       SELECT $1, g, t.id, '', 'next', '', 'plain', repeat('x', 100)
       FROM generate_series($3::bigint, $4::bigint) AS g, (SELECT min(id) AS id FROM mesh.topic) AS t
       WHERE $2 > 0""",
    """INSERT INTO mesh.delivery_queue (mesh_id, history_id, recipient_id, delivered_at)
       SELECT $1, g, m.id, 0
       FROM generate_series($3::bigint, $4::bigint) AS g, mesh.member AS m WHERE m.mesh_id = $1 AND m.id <> $2
       ORDER BY g, m.id""",
)
_FILLED_TOGETHER = 250_000


async def fill(dsn: str, sender: Sender, history: int) -> None:
    """Write what so many accepts and their acknowledgements would have left."""
    connection = await asyncpg.connect(dsn, server_settings={"synchronous_commit": "off"})
    try:
        for first in range(1, history + 1, _FILLED_TOGETHER):
            last = min(first + _FILLED_TOGETHER - 1, history)
            for statement in _FILL:
                await connection.execute(statement, sender.mesh_id, sender.member_id, first, last)
        await connection.execute(
            "UPDATE mesh.history_counter SET history_id = $2 WHERE mesh_id = $1", sender.mesh_id, history
        )
        await connection.execute("VACUUM ANALYZE")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()


async def _cost_us(stores: PostgresStores, sender: Sender, messages: int, topics: Sequence[str]) -> float:
    return 1e6 / await measure_store(stores, [sender], messages, topics)


async def _measure_history(servers: list[Postgres], scale: float) -> list[tuple[float, float]]:
    messages = scaled(8_192, scale, BATCH)
    empty, full = servers
    async with opened(empty.dsn) as one, opened(full.dsn) as other:
        at_one, at_other = await furnish(one), await furnish(other)
        await fill(full.dsn, at_other, scaled(HISTORY, scale))
        for stores, sender in ((one, at_one), (other, at_other)):
            await _cost_us(stores, sender, messages, [TOPIC])
        return [
            (
                await _cost_us(one, at_one, messages, [TOPIC]),
                await _cost_us(other, at_other, messages, [TOPIC]),
            )
            for _ in range(REPEATS)
        ]


async def _measure_topics(server: Postgres, scale: float) -> list[tuple[float, float]]:
    messages = scaled(8_192, scale, BATCH)
    names = [f"topic-{number:04}" for number in range(scaled(TOPICS, scale, 2))]
    async with opened(server.dsn) as stores:
        few, many = await furnish(stores), await furnish(stores)
        for name in names:
            await stores.topics.create_topic(many, name, 0)
            for member in await stores.directory.members(many.mesh_id):
                await stores.topics.subscribe(Sender(many.mesh_id, member.id), name)
        for sender, topics in ((few, [TOPIC]), (many, names)):
            await _cost_us(stores, sender, messages, topics)
        return [
            (await _cost_us(stores, few, messages, [TOPIC]), await _cost_us(stores, many, messages, names))
            for _ in range(REPEATS)
        ]


def _say(what: str, costs: list[tuple[float, float]], few: str, many: str) -> None:
    say_rate(f"accept, fan-out 8, {few}", median(small for small, _ in costs), "us/msg")
    say_rate(f"accept, fan-out 8, {many}", median(large for _, large in costs), "us/msg")
    say_ratio(what, median(large / small for small, large in costs), at_most=(1.4, 1.15))


def run(scale: float) -> None:
    with private_postgres(wheel(), max_wal_size="8GB") as one, private_postgres(wheel(), max_wal_size="8GB") as two:
        costs = run_fast(_measure_history([one, two], scale))
    history = f"{scaled(HISTORY, scale):,} messages"
    _say(f"cost at {history} / empty", costs, "empty database", history)
    with private_postgres(wheel()) as server:
        costs = run_fast(_measure_topics(server, scale))
    topics = f"{scaled(TOPICS, scale, 2):,} topics"
    _say(f"cost over {topics} / 1 topic", costs, "1 topic", topics)
