"""A line that the SDK cannot read is answered, if it says whose answer it waits for.

The SDK passes over such a line, and its sender would wait until it gives up. A host writes one when it cuts a text
in the middle of a character: JavaScript has a form for half of one, and JSON in UTF-8 has none. Or it writes JSON
that is no request: of another shape, say, or of no version.
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
NO_REQUEST: Final = "this is no request of JSON-RPC 2.0: it has a method, which is a text, and params are an object"
DIGITS_MAX: Final = 18  # of an id that is a number

_IN_FRAME: Final = 2  # how deep pydantic places a member of the frame: the kind of frame, and its name

Frame = SessionMessage | Exception


def refuse(error: Exception) -> types.JSONRPCError | None:
    """Return the answer to a line that could not be read; None if it does not say which request it is."""
    for one in error.errors() if isinstance(error, ValidationError) else ():
        match one:
            case {"type": "json_invalid", "input": line}:
                document, code, said = _parse(line), types.PARSE_ERROR, SAID
            case {"type": "missing", "loc": place, "input": frame} if len(place) == _IN_FRAME:
                document, code, said = frame, types.INVALID_REQUEST, NO_REQUEST
            case _:  # of a part, which may look like a request of its own
                continue
        asked = _id_of(document)
        if asked is not None:
            return types.JSONRPCError(jsonrpc="2.0", id=asked, error=types.ErrorData(code=code, message=said))
    return None


def _parse(line: str | bytes) -> object:
    """Read a line by a parser that takes more."""
    try:
        return json.loads(line, parse_int=_parse_int)
    except (ValueError, RecursionError):
        return None


def _id_of(document: object) -> str | int | None:
    """Return the id of what was meant as a request; None if there is none that can be said again."""
    if not isinstance(document, dict) or "method" not in document:
        return None
    asked = document.get("id")
    return asked if isinstance(asked, str | int) and not isinstance(asked, bool) else None


def _parse_int(digits: str) -> int | None:
    return int(digits) if len(digits) <= DIGITS_MAX else None


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
