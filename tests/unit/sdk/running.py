"""What the SDK's tests run on: an event loop in a thread, one way to use both kinds of mesh, a line that breaks."""

import asyncio
import os
import socket
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from claudemesh.sdk.waiting import AsyncStream

WITHIN_S = 30

T = TypeVar("T")


class Background:
    """An event loop in a thread of its own."""

    def __enter__(self) -> Self:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(WITHIN_S)
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WITHIN_S)

    @contextmanager
    def inside(self, context: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter and leave an asynchronous context in the loop, from outside of it."""
        entered = self.run(_as_coroutine(context.__aenter__))
        try:
            yield entered
        finally:
            self.run(_as_coroutine(partial(context.__aexit__, None, None, None)))


async def _as_coroutine(work: Any) -> Any:  # noqa: ANN401 - what it returns
    return await work()


class Blocked:
    """An AsyncMesh, or what it handed out, used like its twin: every call waits for what it would await."""

    def __init__(self, thing: Any, background: Background) -> None:  # noqa: ANN401 - any part of the SDK
        self._thing = thing
        self._background = background

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as above
        found = getattr(self._thing, name)
        return partial(self._call, found) if callable(found) else self._wrap(found)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:  # noqa: ANN401 - as above
        try:
            return self._wrap(self._background.run(_as_coroutine(self._thing.__anext__)))
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> Self:
        self._background.run(self._thing.__aenter__())
        return self

    def __exit__(self, *how: object) -> None:
        self._background.run(self._thing.__aexit__(*how))

    def close(self) -> None:
        self._background.run(self._thing.aclose())

    def _call(self, method: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401 - as above
        result = method(*args, **named)
        if asyncio.iscoroutine(result):
            result = self._background.run(result)
        if isinstance(result, AsyncStream):
            self._background.run(result.open())
        return self._wrap(result)

    def _wrap(self, value: Any) -> Any:  # noqa: ANN401 - as above
        if isinstance(value, list):
            return [self._wrap(one) for one in value]
        return Blocked(value, self._background) if type(value).__name__.startswith("Async") else value


class BreakingLine:
    """A socket in front of a daemon's, which loses answers: the daemon has said them, and nobody hears them."""

    def __init__(self, path: Path, target: Path) -> None:
        self.path = path
        self._target = target
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(os.fspath(path))
        self._listener.listen(16)
        self.to_lose = 0
        self.lost: list[bytes] = []
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._run(self._accept)

    def close(self) -> None:
        for one in (self._listener, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(WITHIN_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, work: Any, *args: object) -> None:  # noqa: ANN401 - any function
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(os.fspath(self._target))
                self._open += [near, far]
                self._run(self._copy, near, far)
                self._run(self._copy_back, far, near)

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)

    def _copy_back(self, far: socket.socket, near: socket.socket) -> None:
        with suppress(OSError):
            while data := far.recv(65536):
                if self.to_lose:
                    self.to_lose -= 1
                    self.lost.append(data)
                    break
                near.sendall(data)
            near.shutdown(socket.SHUT_RDWR)
