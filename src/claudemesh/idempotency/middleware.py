"""What becomes of a write that comes with an Idempotency-Key. All other requests pass through as they are.

    first of its key            the app runs, and its answer is recorded
    the same again              the recorded answer, with `Idempotent-Replayed: true`
    the same, still under way   409 key_in_progress, with Retry-After
    another under the same key  409 key_reused

It is pure ASGI: it stands before any app, and before any other middleware whose answers it should record. Clients
read how long keys are kept at `/.well-known/idempotency-policy`.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from typing import Final

from claudemesh.asgi.messages import (
    ANSWER,
    App,
    Message,
    Receive,
    Response,
    Scope,
    Send,
    json_response,
    send_response,
)
from claudemesh.idempotency.events import KeysSwept, WriteReplayed
from claudemesh.idempotency.mark import ANSWER_BYTES_MAX, MARK, Mark
from claudemesh.idempotency.model import Asked, Begun, Found, KeptResponse
from claudemesh.idempotency.opening import check_url, open_store
from claudemesh.idempotency.policy import POLICY_PATH, derive_source, is_credential, redact_path
from claudemesh.idempotency.ports import SWEEP_MAX, KeyStore
from claudemesh.idempotency.recording import Exchange, Recorder, refuse
from claudemesh.kernel.admission import Busy, Conflict, Replay, Standing
from claudemesh.kernel.clock import DAY_MS, HOUR_MS
from claudemesh.kernel.errors import ConfigError, MeshError, PayloadTooLarge
from claudemesh.kernel.fingerprint import Fingerprint, fingerprint_http_request, prefix
from claudemesh.kernel.idempotency import (
    ADMISSION,
    ANSWER_NOT_KEPT,
    BUSY_RETRY_MS,
    EXPIRY_DAYS_MIN,
    KEY_CHARS_MAX,
    NEVER_KEPT,
    WRITES,
    parse_key,
)
from claudemesh.kernel.write_errors import (
    AnswerNotKept,
    BadIdempotencyKey,
    KeyInProgress,
    KeyReused,
    MarkLost,
)
from claudemesh.runtime.world import World, real_world

BODY_BYTES_MAX: Final = 1024 * 1024
LEASE_MS: Final = 5_000
SWEEP_EVERY_MS: Final = HOUR_MS

_KEY: Final = b"idempotency-key"
_REPLAYED: Final = ((b"idempotent-replayed", b"true"),)
_NO_CONTENT: Final = 204

# Ways around `send`, by which an answer would leave that nobody recorded.
_AROUND: Final = frozenset({"http.response.pathsend", "http.response.zerocopysend", "http.response.trailers"})


def identify_caller(scope: Scope) -> str:
    """Return whose keys these are: a hash of the Authorization header; all who send none share theirs."""
    credentials = _headers(scope, b"authorization")
    return sha256(b"\0".join(credentials)).hexdigest() if credentials else ""


def is_write(method: str, _path: str) -> bool:
    return method in WRITES


class WriteIdempotencyMiddleware:
    """`store` is a URL, opened and closed with the app, or a KeyStore that somebody else opened."""

    def __init__(  # noqa: PLR0913  its settings, by name
        self,
        app: App,
        store: str | KeyStore,
        *,
        caller: Callable[[Scope], str] = identify_caller,
        applies: Callable[[str, str], bool] = is_write,
        body_bytes_max: int = BODY_BYTES_MAX,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        expiry_days: int = EXPIRY_DAYS_MIN,
        required: bool = False,
        lease_ms: int = LEASE_MS,
        world: World | None = None,
    ) -> None:
        if expiry_days < EXPIRY_DAYS_MIN:
            raise ConfigError(f"keys are kept for at least {EXPIRY_DAYS_MIN} days, not {expiry_days}")
        if isinstance(store, str):
            check_url(store)
        self._app = app
        self._url = store if isinstance(store, str) else ""
        self._store = None if isinstance(store, str) else store
        self._caller = caller
        self._applies = applies
        self._body_bytes_max = body_bytes_max
        self._answer_bytes_max = answer_bytes_max
        self._expiry_ms = expiry_days * DAY_MS
        self._required = required
        self._lease_ms = lease_ms
        self._world = world or real_world()
        self._opening = asyncio.Lock()
        self._swept_ms: int | None = None
        self._sweeping: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        elif scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["method"] == "GET" and _path(scope) == POLICY_PATH:
            await send_response(json_response(self._policy()), scope, send)
        elif self._applies(scope["method"], scope["path"]) and (self._required or _headers(scope, _KEY)):
            await self._serve(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    # --- a write with a key ------------------------------------------------------------------------

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            key = _read_key(scope)
            body = await self._read_body(scope, receive)
            if body is None:
                return  # the client is gone, and nothing has begun
            asked = self._ask(scope, key, body)
            store = await self._opened()
            begun = await store.begin(asked)
        except MeshError as error:
            await refuse(error, scope, send)
            return
        self._sweep_if_due(store)
        if isinstance(begun, Begun):
            mark = Mark(store, begun.claim, self._answer_bytes_max)
            _prepare(scope, mark)
            recorder = Recorder(mark, store, self._world.observer, body, Exchange(scope, receive, send))
            await self._run(mark, store, recorder, scope)
        else:
            await self._answer_standing(begun, asked.fingerprint, scope, send)

    async def _run(self, mark: Mark, store: KeyStore, recorder: Recorder, scope: Scope) -> None:
        renewing = asyncio.create_task(self._renew(mark, store))
        try:
            await self._app(scope, recorder.receive, recorder.send)
        except MarkLost:
            if recorder.is_finished or not await recorder.lose():
                raise
        except Exception:
            if not recorder.is_finished:
                await recorder.abandon()
            raise
        else:
            if not recorder.is_finished:
                await recorder.abandon()
        finally:  # cancelled, it leaves the mark to its lease: nobody knows how far the app came
            renewing.cancel()

    async def _renew(self, mark: Mark, store: KeyStore) -> None:
        """Keep the mark for as long as this worker lives. Whether it was lost shows when it is settled."""
        while not mark.is_settled:
            await asyncio.sleep(self._lease_ms / 3_000)
            with suppress(MeshError):
                await store.renew(mark.claim, self._lease_ms)

    async def _answer_standing(self, found: Found, presented: Fingerprint, scope: Scope, send: Send) -> None:
        verdict = ADMISSION.judge(Standing(found.state, found.fingerprint), presented)
        if isinstance(verdict, Replay):
            self._world.observer.publish(WriteReplayed(found.response.status))
            await _send_kept(found.response, scope, send)
        elif isinstance(verdict, Busy):
            await refuse(KeyInProgress(retry_after_ms=BUSY_RETRY_MS), scope, send)
        elif isinstance(verdict, Conflict):
            words = {"conflict": verdict.word, "fingerprint_prefix": prefix(presented)}
            is_done = verdict == ANSWER_NOT_KEPT
            error = AnswerNotKept(**words, status_code=found.response.status) if is_done else KeyReused(**words)
            await refuse(error, scope, send)

    async def _read_body(self, scope: Scope, receive: Receive) -> bytes | None:
        """Return the whole body; None if the client went away meanwhile."""
        lengths = _headers(scope, b"content-length")
        if lengths and lengths[0].isdigit() and int(lengths[0]) > self._body_bytes_max:
            raise PayloadTooLarge(f"a write with a key has a body of at most {self._body_bytes_max} bytes")
        body, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._body_bytes_max:
                raise PayloadTooLarge(f"a write with a key has a body of at most {self._body_bytes_max} bytes")
        return bytes(body)

    def _ask(self, scope: Scope, key: str, body: bytes) -> Asked:
        # Whatever the wall clock is set to, and back again: no key expires sooner than was promised.
        now_ms, latest_ms = self._world.earliest_ms(), max(self._world.steady_ms(), self._world.clock.wall_ms())
        query = scope.get("query_string", b"").decode("latin-1")
        return Asked(
            caller=self._caller(scope),
            key=key,
            method=scope["method"],
            path=redact_path(scope["path"]),
            fingerprint=fingerprint_http_request(scope["method"], scope["path"], query, body),
            now_ms=now_ms,
            expires_at=latest_ms + self._expiry_ms,
            lease_ms=self._lease_ms,
            source_host=_source(scope, b"x-source-host"),
            source_agent=_source(scope, b"x-source-agent"),
        )

    def _policy(self) -> dict[str, object]:
        return {
            "header": "Idempotency-Key",
            "key_format": f"1 to {KEY_CHARS_MAX} visible ASCII characters, quoted or bare",
            "expiry_s": self._expiry_ms // 1_000,
            "methods": WRITES,
            "in_progress_s": -(-self._lease_ms // 1_000),
            "kept": "2xx and settled 4xx",
            "never_kept": NEVER_KEPT,
            "conflict_status": KeyReused.status,
        }

    # --- the store ---------------------------------------------------------------------------------

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Open the store before the app starts, and close it when the app has stopped."""
        first = await receive()
        try:
            await self._opened()
        except MeshError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        waiting = [first]

        async def receive_again() -> Message:
            return waiting.pop() if waiting else await receive()

        async def send_and_close(message: Message) -> None:
            if message["type"] in {"lifespan.shutdown.complete", "lifespan.shutdown.failed"}:
                await self._close()
            await send(message)

        try:
            await self._app(scope, receive_again, send_and_close)
        finally:  # an app that knows no lifespan is done at once: then a request opens it again
            await self._close()

    async def _opened(self) -> KeyStore:
        async with self._opening:
            if self._store is None:
                self._store = await open_store(self._url, self._world)
            return self._store

    async def _close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        async with self._opening:
            if self._store is not None and self._url:
                store, self._store = self._store, None
                await store.aclose()

    def _sweep_if_due(self, store: KeyStore) -> None:
        now_ms = self._world.clock.monotonic_ms()
        if self._swept_ms is None or now_ms - self._swept_ms >= SWEEP_EVERY_MS:
            self._swept_ms = now_ms
            self._sweeping = asyncio.create_task(self._sweep(store))

    async def _sweep(self, store: KeyStore) -> None:
        count = SWEEP_MAX
        while count == SWEEP_MAX:
            try:
                count = await store.sweep(self._world.earliest_ms())
            except MeshError:
                return  # the next time, then
            if count:
                self._world.observer.publish(KeysSwept(count))


def _path(scope: Scope) -> str:
    """Return the path below the place where the app is mounted."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def _headers(scope: Scope, name: bytes) -> list[bytes]:
    return [value for found, value in scope["headers"] if found == name]


def _read_key(scope: Scope) -> str:
    values = _headers(scope, _KEY)
    if len(values) != 1:
        raise BadIdempotencyKey(f"the request has {len(values)} headers Idempotency-Key, and needs one")
    key = parse_key(values[0].decode("latin-1").strip())
    if is_credential(key):
        raise BadIdempotencyKey("the key looks like a credential, and keys are stored")
    return key


def _source(scope: Scope, name: bytes) -> str:
    values = _headers(scope, name)
    return derive_source(values[0].decode("latin-1") if len(values) == 1 else None)


def _prepare(scope: Scope, mark: Mark) -> None:
    """Hand the app its mark, and close the ways around us. A compressed answer could not be looked into."""
    scope[MARK] = mark
    scope.pop(ANSWER, None)
    scope["headers"] = [header for header in scope["headers"] if header[0] != b"accept-encoding"]
    extensions = scope.get("extensions") or {}
    scope["extensions"] = {name: value for name, value in extensions.items() if name not in _AROUND}


async def _send_kept(kept: KeptResponse, scope: Scope, send: Send) -> None:
    headers = (*kept.headers, *_REPLAYED)
    if kept.status == _NO_CONTENT:  # it may not even say that its length is 0
        await send({"type": "http.response.start", "status": kept.status, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
    else:
        await send_response(Response(kept.status, kept.body, headers), scope, send)
