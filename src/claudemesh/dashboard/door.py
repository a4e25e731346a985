"""What a bearer of the dashboard may ask: what is on the list, and nothing else, whatever the daemon serves.

It stands behind the guard of the port, which judged host, origin and token. A request that goes on for long, such
as the stream of events, ends with the login that it was asked with.
"""

import asyncio
import re
from typing import Final

from claudemesh.asgi.messages import CALLER, App, Message, Receive, Scope, Send, refuse
from claudemesh.dashboard.logins import NAME, Login, Logins
from claudemesh.kernel.errors import BadToken, Forbidden

# Reading, and the decisions that the page offers. Not here: sending, marks, members, tokens, settings, codes.
_ALLOWED: Final = {
    "GET": (
        "/v1/health",
        "/v1/version",
        "/v1/peers",
        "/v1/topic/list",
        "/v1/queue/list",
        "/v1/inbox",
        "/v1/outbox/{id}",
        "/v1/trace/{id}",
        "/v1/events",
        "/v1/dashboard/overview",
        "/v1/dashboard/traffic",
        "/v1/dashboard/outbox",
        "/v1/dashboard/relay/envelopes",
        "/v1/dashboard/relay/envelope",
        "/v1/dashboard/ledger",
        "/v1/dashboard/ledger/step",
        "/v1/dashboard/pipeline",
    ),
    "POST": (
        "/v1/dashboard/outbox/requeue",
        "/v1/dashboard/outbox/drop",
        "/v1/dashboard/relay/decide",
        "/v1/dashboard/logout",
    ),
}
_PATTERNS: Final = {
    method: re.compile("|".join(re.escape(path).replace(r"\{id\}", "[^/]+") for path in paths))
    for method, paths in _ALLOWED.items()
}


def is_allowed(method: str, path: str) -> bool:
    pattern = _PATTERNS.get(method)
    return pattern is not None and pattern.fullmatch(path) is not None


def bearer_of(scope: Scope) -> bytes:
    """Return the token of a request that passed the guard: there is one such header, and it has this form."""
    sent: bytes = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    return sent.partition(b" ")[2].strip()


class Door:
    def __init__(self, app: App, logins: Logins) -> None:
        self._app = app
        self._logins = logins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get(CALLER) != NAME:
            await self._app(scope, receive, send)
        elif not is_allowed(scope.get("method", ""), scope["path"]):
            await refuse(Forbidden("the dashboard may not do this"), scope, receive, send)
        elif (login := self._logins.use(bearer_of(scope))) is None:
            await refuse(BadToken(), scope, receive, send)
        else:
            await self._app(scope, self._until_over(login, receive), send)

    def _until_over(self, login: Login, receive: Receive) -> Receive:
        async def receive_or_end() -> Message:
            """Say that the client is gone once its login is over."""
            coming = asyncio.ensure_future(receive())
            ending = asyncio.ensure_future(self._logins.until_over(login))
            try:
                await asyncio.wait({coming, ending}, return_when=asyncio.FIRST_COMPLETED)
                return coming.result() if coming.done() else {"type": "http.disconnect"}
            finally:
                coming.cancel()
                ending.cancel()

        return receive_or_end
