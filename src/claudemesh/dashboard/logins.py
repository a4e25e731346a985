"""Who is logged in: one-time codes, and the short bearers that they are traded for. There are no cookies.

A code is made for whoever owns the daemon's socket or its local token, and travels in the fragment of a link, which
no browser sends anywhere. It is good for a short while and once. The bearer lives in the page: while it is used,
for some hours at most, and until the daemon stops or its owner takes a new local token. Nothing of it is stored.
"""

import asyncio
import hmac
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from claudemesh.kernel.clock import HOUR_MS, Clock
from claudemesh.kernel.errors import BadToken
from claudemesh.runtime.tokens import fresh_token

NAME: Final = "dashboard"  # under which the requests of all bearers are counted

CODE_MS: Final = 120_000
CODES_MAX: Final = 8
IDLE_MS: Final = 900_000
LIFE_MS: Final = 8 * HOUR_MS
LOGINS_MAX: Final = 16


@dataclass(slots=True)
class Login:
    bearer: bytes
    ends_ms: int  # of the monotonic clock, like the others
    idle_until_ms: int
    is_over: asyncio.Event = field(default_factory=asyncio.Event)


class Logins:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._codes: dict[bytes, int] = {}  # until when each is good
        self._logins: list[Login] = []  # the one used last comes last

    # --- codes -------------------------------------------------------------------------------------

    def mint_code(self) -> str:
        """Make a code. Only a few wait to be used: of too many the oldest ends."""
        self._forget_old_codes()
        while len(self._codes) >= CODES_MAX:
            del self._codes[next(iter(self._codes))]
        code = fresh_token()
        self._codes[code.encode()] = self._clock.monotonic_ms() + CODE_MS
        return code

    def trade(self, code: str) -> str:
        """Use a code up, and return a bearer; BadToken if it was used, is too old, or never was."""
        self._forget_old_codes()
        presented = code.encode(errors="replace")
        # All are compared, in constant time each: nothing tells how near a guess was.
        found = [known for known in self._codes if hmac.compare_digest(known, presented)]
        if not found:
            raise BadToken("the code was used, is too old, or never was: `claudemesh dashboard` makes another")
        del self._codes[found[0]]
        return self._begin()

    def _forget_old_codes(self) -> None:
        now_ms = self._clock.monotonic_ms()
        self._codes = {code: until_ms for code, until_ms in self._codes.items() if now_ms < until_ms}

    # --- bearers -----------------------------------------------------------------------------------

    def _begin(self) -> str:
        self._forget_old_logins()
        while len(self._logins) >= LOGINS_MAX:
            self._end(self._logins[0])
        bearer, now_ms = fresh_token(), self._clock.monotonic_ms()
        self._logins.append(Login(bearer.encode(), now_ms + LIFE_MS, now_ms + IDLE_MS))
        return bearer

    def identify(self, presented: bytes) -> str | None:
        """As a TokenSource. To ask is no use of it: whoever is refused prolongs nothing."""
        return None if self._find(presented) is None else NAME

    def use(self, presented: bytes) -> Login | None:
        """Return the login and prolong it, or None if there is none, or none any more."""
        login = self._find(presented)
        if login is not None:
            login.idle_until_ms = self._clock.monotonic_ms() + IDLE_MS
            self._logins.remove(login)
            self._logins.append(login)
        return login

    def left_ms(self, login: Login) -> int:
        """Return how long it lasts if nobody uses it; 0 if it is over."""
        if login.is_over.is_set():
            return 0
        return max(0, min(login.ends_ms, login.idle_until_ms) - self._clock.monotonic_ms())

    async def until_over(self, login: Login) -> None:
        while left_ms := self.left_ms(login):
            with suppress(TimeoutError):
                async with asyncio.timeout(left_ms / 1000):
                    await login.is_over.wait()

    def end(self, presented: bytes) -> bool:
        """End one, and say whether there was one."""
        login = self._find(presented)
        if login is not None:
            self._end(login)
        return login is not None

    def end_all(self) -> None:
        """End all of them, and all codes."""
        self._codes = {}
        for login in list(self._logins):
            self._end(login)

    def _find(self, presented: bytes) -> Login | None:
        self._forget_old_logins()
        found = [login for login in self._logins if hmac.compare_digest(login.bearer, presented)]
        return found[0] if found else None

    def _forget_old_logins(self) -> None:
        for login in [one for one in self._logins if not self.left_ms(one)]:
            self._end(login)

    def _end(self, login: Login) -> None:
        login.is_over.set()
        self._logins.remove(login)
