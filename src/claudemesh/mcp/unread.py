"""A line that the SDK cannot read is answered, if it says whose answer it waits for.

The SDK passes over such a line, and its sender would wait until it gives up. A host writes one when it cuts a text
in the middle of a character: JavaScript has a form for half of one, and JSON in UTF-8 has none.
"""

import json
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

SAID: Final = "this is no message that can be read: half a character, a number too long, or nested too deep?"
DIGITS_MAX: Final = 18  # of an id that is a number

Frame = SessionMessage | Exception


def refuse(error: Exception) -> types.JSONRPCError | None:
    """Return the answer to a line that could not be read; None if it does not say which request it is."""
    for one in error.errors() if isinstance(error, ValidationError) else ():
        asked = _parse(one["input"])
        if asked is not None:
            return types.JSONRPCError(
                jsonrpc="2.0", id=asked, error=types.ErrorData(code=types.PARSE_ERROR, message=SAID)
            )
    return None


def _parse(line: object) -> str | int | None:
    """Return the id of a request, read by a parser that takes more."""
    try:
        document = json.loads(line, parse_int=_parse_int) if isinstance(line, str | bytes) else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or "method" not in document:
        return None
    asked = document.get("id")
    return asked if isinstance(asked, str | int) and not isinstance(asked, bool) else None


def _parse_int(digits: str) -> int:
    return int(digits) if len(digits) <= DIGITS_MAX else 0


@asynccontextmanager
async def answering(
    reading: AsyncIterable[Frame], answer: Callable[[SessionMessage], Awaitable[None]]
) -> AsyncIterator[MemoryObjectReceiveStream[Frame]]:
    """Yield what is left to read."""
    passing, rest = anyio.create_memory_object_stream[Frame](0)

    async def sort() -> None:
        async with passing:
            async for frame in reading:
                refusal = refuse(frame) if isinstance(frame, Exception) else None
                await (passing.send(frame) if refusal is None else answer(SessionMessage(refusal)))

    async with anyio.create_task_group() as group:
        group.start_soon(sort)
        yield rest
        group.cancel_scope.cancel()
