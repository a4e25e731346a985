"""Budgets counted in a Redis, which several brokers may share.

The rule is `consume.lua`, and a call is one run of it. Calls that come while a round trip is under way go together
in the next one, so one connection is enough, and the more callers wait, the less each costs.

Redis may be gone, hanging, full or a replica: then nobody can say what is left of a budget, every call is told so
within ANSWER_S, and the next one begins with a new connection.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError

from claudemesh.kernel.errors import ConfigError, LimiterUnavailable

ANSWER_S: Final = 1.0
RETRY_AFTER_MS: Final = 1_000
TOGETHER_MAX: Final = 256  # calls that share a round trip
CONSUME: Final = files(__package__).joinpath("consume.lua").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class _Call:
    key: str
    arguments: tuple[object, ...]
    answer: asyncio.Future[list[int | None]]

    def settle(self, reply: object) -> None:
        if self.answer.done():  # its caller is gone
            return
        if not isinstance(reply, list):  # only its kind is told: a text may hold what the address does
            detail = f"budgets cannot be counted now: {type(reply).__name__}"
            self.answer.set_exception(LimiterUnavailable(detail, retry_after_ms=RETRY_AFTER_MS))
        else:
            self.answer.set_result([wait_ms or None for wait_ms in reply])


class RedisLimiter:
    """By the clock of the server: a broker's own neither opens nor closes a window."""

    def __init__(self, url: str, window_ms: int, script: str = CONSUME) -> None:
        self._client = _connect(url)
        self._window_ms = window_ms
        self._script = script
        self._digest = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()  # as Redis names it
        self._waiting: list[_Call] = []
        self._rounds: asyncio.Task[None] | None = None

    async def consume(
        self, mesh: str, sender: str, client_message_ids: Sequence[str], limit: int
    ) -> list[int | None]:
        arguments = (self._window_ms, limit, *client_message_ids)
        answer: asyncio.Future[list[int | None]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Call(f"claudemesh:limiter:{{{mesh}:{sender}}}", arguments, answer))
        if self._rounds is None:
            self._rounds = asyncio.create_task(self._run())
        return await answer

    async def aclose(self) -> None:
        if self._rounds is not None:
            await self._rounds
        with suppress(Exception):  # whatever the other side does at the end
            await self._client.aclose()

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._round()
        finally:
            self._rounds = None

    async def _round(self) -> None:
        calls, self._waiting = self._waiting[:TOGETHER_MAX], self._waiting[TOGETHER_MAX:]
        replies: list[Any]
        try:
            async with asyncio.timeout(ANSWER_S):
                replies = await self._ask(calls)
        except Exception as error:  # noqa: BLE001  whatever it was, nobody is left without an answer
            calls, self._waiting = calls + self._waiting, []  # who came meanwhile would only wait as long again
            replies = [error] * len(calls)
        for call, reply in zip(calls, replies, strict=True):
            call.settle(reply)
        if not all(isinstance(reply, list) for reply in replies):
            with suppress(Exception):
                await self._client.connection_pool.disconnect()  # by its name it may be another server by now

    async def _ask(self, calls: list[_Call]) -> list[Any]:
        replies = await self._send("EVALSHA", self._digest, calls)
        if any(isinstance(reply, NoScriptError) for reply in replies):  # it was started anew, and knows no scripts
            replies = await self._send("EVAL", self._script, calls)  # all of them: an id is taken only once
        return replies

    async def _send(self, command: str, script: str, calls: list[_Call]) -> list[Any]:
        async with self._client.pipeline(transaction=False) as pipeline:
            for call in calls:
                pipeline.execute_command(command, script, 1, call.key, *call.arguments)
            return await pipeline.execute(raise_on_error=False)


def _connect(url: str) -> Redis:
    """Return a client; it connects when it is first used."""
    try:
        return Redis.from_url(
            url,
            max_connections=1,
            protocol=2,
            retry=Retry(NoBackoff(), 0),  # who asked is told, and asks again
            socket_connect_timeout=ANSWER_S,  # also the longest that it waits for the end of a connection
            socket_timeout=None,  # one bound for the whole round trip, however slowly its parts come
        )
    except ValueError:  # its text quotes from the URL, which may hold a password
        raise ConfigError("the URL of the limiter is not one that a Redis is reached by") from None
