"""How an outcome travels from the thread that found it, the writer's or a reader's, to whoever waits for it.

A caller waits either in a thread or in an event loop. Waking a loop costs more than an answer does, so all answers
of a group that belong to one loop go over in one call.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NamedTuple


class ThreadReply(NamedTuple):
    future: Future[Any]


class LoopReply(NamedTuple):
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


Reply = ThreadReply | LoopReply


def answer(answers: Iterable[tuple[Reply, object]]) -> None:
    """Deliver each outcome once, an error by raising it there; whoever is gone or answered is passed over."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], object]]] = defaultdict(list)
    for reply, outcome in answers:
        if isinstance(reply, LoopReply):
            by_loop[reply.loop].append((reply.future, outcome))
        else:
            _deliver(reply.future, outcome)
    for loop, outcomes in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed, and with it everybody who waited there
            loop.call_soon_threadsafe(_deliver_all, outcomes)


def _deliver_all(outcomes: list[tuple[asyncio.Future[Any], object]]) -> None:
    for future, outcome in outcomes:
        _deliver(future, outcome)


def _deliver(future: Future[Any] | asyncio.Future[Any], outcome: object) -> None:
    try:
        if future.done():
            return
        if isinstance(outcome, BaseException):
            future.set_exception(_raisable(outcome))
        else:
            future.set_result(outcome)
    except BaseException:  # noqa: BLE001, S110  what a caller hung onto its future must not stop the answers to others
        pass


def _raisable(error: BaseException) -> Exception:
    """Return what a future can carry: not an error that would mean something else where it is raised."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError(f"an operation raised {error!r}")
    wrapped.__cause__ = error
    return wrapped
