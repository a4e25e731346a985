"""The sessions of this daemon: processes of the member that are shown to the others one by one.

A session is known by a token that its process chose. Only the token's digest is held, and nothing of a session
outlives the daemon: after a restart the processes register again, in time for their leases to go on. By the same
token a session has the same key then, unless it brings one of its own.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from claudemesh.daemon.events import SessionAlerted, SessionEnded, SessionRegistered, Warned
from claudemesh.daemon.handshake import LinkSettings
from claudemesh.daemon.link import GOODBYE_S
from claudemesh.daemon.ports import BrokerLink, InboxStore
from claudemesh.daemon.processes import is_alive, look_up
from claudemesh.daemon.session import Registration, Session, derive_instance
from claudemesh.daemon.settings import LiveConfig
from claudemesh.kernel.errors import (
    BrokerUnreachable,
    InvalidRequest,
    MeshError,
    NotFound,
    StateError,
    TooManySessions,
)
from claudemesh.runtime.keys import KeyPair, verify
from claudemesh.runtime.world import World
from claudemesh.wire.attestation import ATTESTATION_EXPIRED, BAD_ATTESTATION, judge_attestation
from claudemesh.wire.frames import PRESENCE_END, SESSION_BYTES_MAX, Attestation, SessionInfo

FIRST_TRY_S: Final = 2.0  # how long a registration waits for its connection
UNTOLD_MAX: Final = 10_000
RETRY_AFTER_MS: Final = 5_000
DIGEST_MARK: Final = "sha256:"  # a token may be named by its digest, where it would stand in an address

KEY_PURPOSE: Final = b"claudemesh session key v1\0"
_SEED_BYTES: Final = 32
_WRONG: Final = {
    BAD_ATTESTATION: "parent_attestation is not this member's word for this session's key",
    ATTESTATION_EXPIRED: "parent_attestation has expired, or is good for more than a day",
}

Because = Literal["deleted", "process_gone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A registration as its caller asks for it."""

    token: str
    pid: int
    info: SessionInfo
    keys: KeyPair | None = None
    attestation: Attestation | None = None


@dataclass(frozen=True, slots=True)
class Registered:
    session: Session
    is_new: bool
    unread: int  # messages that named it


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def parse_keys(pubkey: str, seed: str) -> KeyPair:
    """Read a key pair; InvalidRequest, which quotes nothing of it, if its halves do not belong together."""
    try:
        raw = bytes.fromhex(seed)
    except ValueError:
        raw = b""
    if len(raw) != _SEED_BYTES or (keys := KeyPair(raw)).pubkey != pubkey:
        raise InvalidRequest("session_keypair: seed is 32 bytes in hex, and pubkey its public half")
    return keys


class Sessions:
    def __init__(  # noqa: PLR0913  all by name
        self,
        *,
        member: KeyPair,
        link: LinkSettings,
        live: LiveConfig,
        world: World,
        inbox: InboxStore,
        main: Callable[[], BrokerLink],
    ) -> None:
        """Take the member's key, and `main`: the daemon's own connection, or BrokerUnreachable."""
        self._member = member
        self._link = link
        self._live = live
        self._world = world
        self._inbox = inbox
        self._main = main
        self._sessions: dict[bytes, Session] = {}  # by their tokens' digests
        self._untold: dict[str, None] = {}  # keys of sessions that ended unheard, the oldest first

    def __iter__(self) -> Iterator[Session]:
        return iter([*self._sessions.values()])

    # --- coming and going --------------------------------------------------------------------------

    async def register(self, asked: Asked) -> Registered:
        """Return the session of this token; what is said of it holds from now on.

        One that was to stay away comes back: somebody decided so.
        """
        known = digest(asked.token)
        said = self._judge(asked)
        standing = self._sessions.get(known)
        if standing is None:
            session = self._begin(known, asked, said)
        else:
            if asked.keys is not None and asked.keys.pubkey != standing.pubkey:
                raise StateError("this token stands for a session with another key", reason="other_key")
            self._check(said.attestation, standing.pubkey)
            standing.change(said)
            session = standing
        is_return = session.start()
        try:
            async with asyncio.timeout(FIRST_TRY_S):
                await session.until_settled()
        except TimeoutError:
            pass  # it is registered, and goes on trying
        unread = await self._inbox.unread_of(session.pubkey)
        if is_return:
            self._alert(session.pubkey, unread)
        return Registered(session, standing is None, unread)

    def _judge(self, asked: Asked) -> Registration:
        process = look_up(asked.pid)
        if process is None:
            raise InvalidRequest(f"pid: no process {asked.pid} runs here")
        if len(msgspec.json.encode(asked.info)) > SESSION_BYTES_MAX:  # which no broker would take
            raise InvalidRequest(f"what a session says of itself has at most {SESSION_BYTES_MAX} bytes on the wire")
        return Registration(process=process, info=asked.info, attestation=asked.attestation)

    def _check(self, attestation: Attestation | None, session_pubkey: str) -> None:
        """Refuse what the broker would refuse, in the words that it has for it."""
        if attestation is None:
            return  # the daemon makes its own
        now_ms = self._world.clock.wall_ms()
        wrong = judge_attestation(attestation, self._member.pubkey, session_pubkey, now_ms, verify)
        if wrong is not None:
            raise InvalidRequest(_WRONG[wrong], reason=wrong)

    def _begin(self, known: bytes, asked: Asked, said: Registration) -> Session:
        limit = self._live.config.sessions.max
        if len(self._sessions) >= limit:
            raise TooManySessions(f"{limit} sessions are registered here", retry_after_ms=RETRY_AFTER_MS)
        keys = asked.keys or self._member.derive(KEY_PURPOSE + known)
        if keys.pubkey == self._member.pubkey:
            raise InvalidRequest("session_keypair: a session has a key of its own, not its member's")
        if self._has(keys.pubkey):
            raise StateError("another token stands for a session with this key", reason="other_token")
        self._check(said.attestation, keys.pubkey)
        session = Session(keys, self._member, self._link, self._world, said, returned=self._returned)
        self._untold.pop(session.pubkey, None)
        self._sessions[known] = session
        self._world.observer.publish(SessionRegistered(session.pubkey, said.process.pid))
        return session

    async def end(self, token: str) -> tuple[Session, bool]:
        """End the session of a token, or of `sha256:` and its digest; say whether the broker knows already."""
        known = digest(token)
        if known not in self._sessions and token.startswith(DIGEST_MARK):
            known = _parse_digest(token.removeprefix(DIGEST_MARK))
        session = self._sessions.pop(known, None)
        if session is None:
            raise NotFound("no session is registered with this token")
        return session, await self._end(session, "deleted")

    async def end_all(self) -> None:
        await asyncio.gather(*(self._end(session, "deleted") for session in self._take_all()))

    def _take_all(self) -> list[Session]:
        sessions = [*self._sessions.values()]
        self._sessions.clear()
        return sessions

    async def _end(self, session: Session, because: Because) -> bool:
        """End a session that nobody finds here any more, so that it ends once; say whether the broker knows."""
        try:
            told = await session.say_goodbye()
        finally:
            await session.stop()  # before others speak for it: it must not be back behind them
        told = told or await self._tell(session.pubkey)
        if not told and not self._has(session.pubkey):
            self._untold[session.pubkey] = None
            while len(self._untold) > UNTOLD_MAX:
                del self._untold[next(iter(self._untold))]
        self._world.observer.publish(SessionEnded(session.pubkey, because, told))
        return told

    # --- what waited for them ----------------------------------------------------------------------

    async def _returned(self, pubkey: str) -> None:
        try:
            self._alert(pubkey, await self._inbox.unread_of(pubkey))
        except MeshError as error:  # no reason to give its connection up
            self._warn("session_alert", error)

    def _alert(self, pubkey: str, unread: int) -> None:
        if unread:
            self._world.observer.publish(SessionAlerted(pubkey, unread))

    def _warn(self, what: str, error: Exception) -> None:
        self._world.observer.publish(Warned(what, repr(error)[:300]))

    # --- for those that cannot speak for themselves ------------------------------------------------

    async def connected(self) -> None:
        """Tell the broker of ends that it has not heard of: the daemon's own connection stands again."""
        for pubkey in [*self._untold]:
            if await self._tell(pubkey):
                self._untold.pop(pubkey, None)

    def _has(self, pubkey: str) -> bool:
        return any(session.pubkey == pubkey for session in self._sessions.values())

    async def _tell(self, pubkey: str) -> bool:
        if self._has(pubkey):
            return True  # it is back, and must not be ended for what was before
        try:
            async with asyncio.timeout(GOODBYE_S):
                # Of this registration alone: another daemon may have taken the session over.
                instance_id = derive_instance(self._link.instance_id, pubkey)
                await self._main().call(PRESENCE_END, {"session_pubkey": pubkey, "instance_id": instance_id})
        except (BrokerUnreachable, TimeoutError):
            return False
        except MeshError as error:
            return error.retry == "no"  # the broker knows of no such session, say
        return True

    async def run(self) -> None:
        """End sessions whose processes are gone, and have the others vouched for in time, until cancelled."""
        try:
            while True:
                await asyncio.sleep(self._live.config.sessions.reap_every_s)
                try:
                    await self._look_after()
                except Exception as error:  # noqa: BLE001  whatever it is, the next turn comes
                    self._warn("sessions", error)
        finally:
            await self._close_all()

    async def _look_after(self) -> None:
        gone = [known for known, session in self._sessions.items() if not is_alive(session.said.process)]
        ending = [self._end(self._sessions.pop(known), "process_gone") for known in gone]
        for outcome in await asyncio.gather(*ending, return_exceptions=True):
            if isinstance(outcome, Exception):
                self._warn("sessions", outcome)
        for session in self:
            session.renew_if_due()

    async def _close_all(self) -> None:
        """Close their connections, as this daemon stops: their leases go on for as long as they are granted."""
        await asyncio.gather(*(session.stop() for session in self._take_all()))


def _parse_digest(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""
