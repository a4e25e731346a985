"""Who gets in by TCP. Any process and any web page of this machine can connect to a loopback port.

Judged in this order, so that an answer never tells more than the caller may know: the name that was asked for, the
origin that asks, a token where none belongs, the token. Then how often it asks. The rules are in `policy`, what a
token is in `tokens`; this file puts them in their order and says what was refused. The Unix socket needs none of
it: its file mode and the peer's user id are the guard there.
"""

from collections.abc import Iterable
from typing import Final
from urllib.parse import parse_qsl

from claudemesh.asgi.events import RequestRefused, TokenExposed
from claudemesh.asgi.messages import CALLER, App, Receive, Scope, Send, refuse
from claudemesh.asgi.policy import LOCAL_RATE, Bucket, Names, RateLimit, full_bucket, judge_caller, take
from claudemesh.asgi.tokens import TokenSource
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import BadToken, InvalidRequest, MeshError, MissingToken, RateLimited, TokenInUrl
from claudemesh.runtime.observe import Observer

_TOKEN_PARAMETERS: Final = frozenset({"token", "access_token"})
_QUERY_FIELDS_MAX: Final = 100
_PUBLIC: Final = "public"  # the bucket of those who need no token


class LocalGuard:
    """Stands before an app on a loopback port. Without `tokens` whoever passes by name and origin gets in.

    With no port it stands before one that is meant to be reached from elsewhere, under names that it cannot know:
    then nobody who names an origin gets in, and all others by their token.
    """

    def __init__(  # noqa: PLR0913 - what it judges by, each named
        self,
        app: App,
        tokens: TokenSource | None,
        *,
        port: int | None,
        clock: Clock,
        observer: Observer,
        limit: RateLimit | None = LOCAL_RATE,
        public_paths: frozenset[str] = frozenset(),
        public_hosts: Iterable[str] = (),
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._names = None if port is None else Names.of_loopback(port, public_hosts)
        self._clock = clock
        self._observer = observer
        self._limit = limit
        self._public_paths = public_paths
        self._buckets: dict[str, Bucket] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._judge(scope)
        except MeshError as error:
            self._observer.publish(RequestRefused(error.code))
            await refuse(error, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _judge(self, scope: Scope) -> None:
        hosts: list[bytes] = []
        origins: list[bytes] = []
        credentials: list[bytes] = []
        by_name = {b"host": hosts, b"origin": origins, b"authorization": credentials}
        for name, value in scope["headers"]:
            if name in by_name:
                by_name[name].append(value)
        refusal = judge_caller(self._names, scope.get("method", "GET"), hosts, origins)
        if refusal is not None:
            raise refusal
        if scope["query_string"]:
            self._refuse_token_in_url(scope)
        scope[CALLER] = name = self._identify(scope["path"], credentials)
        self._admit(name)

    def _refuse_token_in_url(self, scope: Scope) -> None:
        try:
            pairs = parse_qsl(
                scope["query_string"].decode(), keep_blank_values=True, max_num_fields=_QUERY_FIELDS_MAX
            )
        except ValueError as error:
            raise InvalidRequest("the query string cannot be read") from error
        is_named = any(name.lower() in _TOKEN_PARAMETERS for name, _ in pairs)
        is_ours = any(self._is_token(part) for pair in pairs for part in pair)
        if is_named or is_ours:
            peer = ":".join(map(str, scope.get("client") or ()))
            self._observer.publish(TokenExposed(peer, is_ours))
            raise TokenInUrl

    def _is_token(self, text: str) -> bool:
        return self._tokens is not None and self._tokens.identify(text.encode(errors="replace")) is not None

    def _identify(self, path: str, credentials: list[bytes]) -> str:
        if self._tokens is None or path in self._public_paths:
            return _PUBLIC
        if len(credentials) > 1:
            raise InvalidRequest("the header Authorization was sent twice")
        scheme, _, presented = credentials[0].partition(b" ") if credentials else (b"", b"", b"")
        if scheme.lower() != b"bearer" or not presented:
            raise MissingToken
        name = self._tokens.identify(presented.strip())
        if name is None:
            raise BadToken
        return name

    def _admit(self, name: str) -> None:
        if self._limit is None:
            return
        now_ms = self._clock.monotonic_ms()
        bucket = self._buckets.get(name) or full_bucket(self._limit, now_ms)
        self._buckets[name], wait_ms = take(bucket, self._limit, now_ms)
        if wait_ms:
            raise RateLimited(retry_after_ms=wait_ms)
