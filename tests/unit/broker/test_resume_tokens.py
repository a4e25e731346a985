"""A resume token opens one lease, once, for whom and for as long as it says; whatever else it is, it is ignored."""

import base64
import json
from collections.abc import Sequence

import pytest

from claudemesh.broker.presence.model import ResumeClaim
from claudemesh.broker.presence.tokens import (
    PREFIX,
    RELOAD_AFTER_MS,
    SKEW_MS,
    TOKEN_CHARS_MAX,
    Holder,
    Resumable,
    ResumeTokens,
    parse_seeds,
)
from claudemesh.kernel.clock import DAY_MS
from claudemesh.runtime.keys import KeyPair
from claudemesh.wire.signing import resume_bytes
from tests.doubles import ManualClock

pytestmark = pytest.mark.req("P6")

TTL = 90_000
SEEDS = [bytes([number]) * 32 for number in range(1, 5)]
MEMBER = "c" * 64
ANN = Holder(mesh_uid="mesh", member_pubkey=MEMBER, key="a" * 64, expires_at=None)
CLAIM = ResumeClaim("01LEASE", 7)


class Desk:
    """A broker's tokens over keys that can be rotated; it counts how often they are read."""

    def __init__(self, clock: ManualClock, *seeds: bytes, ttl_ms: int = TTL) -> None:
        self.clock = clock
        self.kept: Sequence[bytes] = seeds or SEEDS[:1]
        self.loads = 0
        self.tokens = ResumeTokens(self._load, self.kept, clock, ttl_ms)

    async def _load(self) -> Sequence[bytes]:
        self.loads += 1
        return self.kept

    async def judge(self, token: str, holder: Holder = ANN) -> Resumable | None:
        return await self.tokens.judge(token, holder.mesh_uid, holder.member_pubkey, holder.key)


@pytest.fixture
def desk() -> Desk:
    return Desk(ManualClock())


def encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def forge(seed: bytes, **changes: object) -> str:
    """Return a token as its signer would make it, with some of what it says changed."""
    now = ManualClock().wall
    pair = KeyPair(seed)
    said = {
        "sub": ANN.key,
        "mem": MEMBER,
        "mid": ANN.mesh_uid,
        "exp": now + TTL,
        "iat": now,
        "jti": "01LEASE.7",
        "kid": pair.pubkey[:16],
    }
    text = encode(json.dumps(said | changes).encode())
    return f"{PREFIX}{text}.{encode(bytes.fromhex(pair.sign(resume_bytes(text))))}"


async def test_a_token_says_which_lease_it_resumes_and_with_which_of_its_sockets(desk: Desk) -> None:
    token = desk.tokens.issue(ANN, CLAIM)
    assert token.startswith("mesh-resume.v1.")
    assert len(token) <= TOKEN_CHARS_MAX
    assert await desk.judge(token) == Resumable(CLAIM, None)
    assert await desk.judge(forge(SEEDS[0])) == Resumable(CLAIM, None), "the forger of these tests can forge"


async def test_a_session_is_vouched_for_no_longer_than_its_member_did(desk: Desk) -> None:
    until = desk.clock.wall + 60_000
    holder = Holder(mesh_uid="mesh", member_pubkey=MEMBER, key="b" * 64, expires_at=until)
    token = desk.tokens.issue(holder, CLAIM)
    desk.clock.advance(59_999)
    assert await desk.judge(token, holder) == Resumable(CLAIM, until)
    desk.clock.advance(1)
    assert await desk.judge(token, holder) is None


@pytest.mark.parametrize(("after_ms", "is_good"), [(0, True), (TTL - 1, True), (TTL, False), (DAY_MS, False)])
async def test_a_token_is_good_for_as_long_as_a_lease(desk: Desk, after_ms: int, is_good: bool) -> None:  # noqa: FBT001
    token = desk.tokens.issue(ANN, CLAIM)
    desk.clock.advance(after_ms)
    assert (await desk.judge(token) is not None) == is_good


@pytest.mark.parametrize(("ahead_ms", "is_good"), [(SKEW_MS, True), (SKEW_MS + 1, False), (DAY_MS, False)])
async def test_a_token_from_the_future_is_good_only_by_as_much_as_two_brokers_clocks_may_differ(
    ahead_ms: int,
    is_good: bool,  # noqa: FBT001  a column of the table
) -> None:
    ahead, here = Desk(ManualClock()), Desk(ManualClock())
    ahead.clock.advance(ahead_ms)
    token = ahead.tokens.issue(ANN, CLAIM)
    assert (await here.judge(token) is not None) == is_good


@pytest.mark.parametrize("jump_ms", [DAY_MS, -DAY_MS, 366 * DAY_MS])
async def test_setting_the_wall_clock_voids_nothing_and_revives_nothing(desk: Desk, jump_ms: int) -> None:
    token = desk.tokens.issue(ANN, CLAIM)
    desk.clock.wall += jump_ms
    assert await desk.judge(token) == Resumable(CLAIM, None)
    made_since = desk.tokens.issue(ANN, CLAIM)
    desk.clock.wall -= jump_ms
    assert await desk.judge(made_since) == Resumable(CLAIM, None)
    desk.clock.wall += jump_ms
    desk.clock.monotonic += TTL
    assert await desk.judge(token) is None
    assert await desk.judge(made_since) is None


async def test_a_token_is_good_for_nobody_else_and_nowhere_else(desk: Desk) -> None:
    token = desk.tokens.issue(ANN, CLAIM)
    assert await desk.tokens.judge(token, "other", MEMBER, ANN.key) is None
    assert await desk.tokens.judge(token, ANN.mesh_uid, MEMBER, "b" * 64) is None
    assert await desk.tokens.judge(token, ANN.mesh_uid, "b" * 64, ANN.key) is None
    assert await desk.tokens.judge(token, ANN.key, MEMBER, ANN.mesh_uid) is None


async def test_with_any_one_bit_changed_a_token_is_no_token(desk: Desk) -> None:
    token = desk.tokens.issue(
        Holder(mesh_uid="mesh", member_pubkey=MEMBER, key=ANN.key, expires_at=desk.clock.wall + DAY_MS), CLAIM
    )
    assert await desk.judge(token)
    for place in range(len(token)):
        for bit in range(8):
            changed = token[:place] + chr(ord(token[place]) ^ 1 << bit) + token[place + 1 :]
            assert await desk.judge(changed) is None, (place, bit)


async def test_cut_off_anywhere_or_longer_than_it_was_a_token_is_no_token(desk: Desk) -> None:
    token = desk.tokens.issue(ANN, CLAIM)
    for length in range(len(token)):
        assert await desk.judge(token[:length]) is None
        assert await desk.judge(token[length + 1 :]) is None
    head, _, signature = token.rpartition(".")
    longer = [token + one for one in ("A", "=", "==", ".", " ", "\n", "\0", "é")]
    longer += [token + token, f"{token}.{token}", f"{token}.{signature}", f"{head}..{signature}", f" {token}"]
    longer += [token + "A" * 1_000_000, "A" * 1_000_000, PREFIX + "A" * 1_000_000, PREFIX + "." * 1_000]
    for one in longer:
        assert await desk.judge(one) is None


@pytest.mark.parametrize(
    "text", ["", ".", PREFIX, f"{PREFIX}.", f"{PREFIX}..", f"{PREFIX}e30.", f"{PREFIX}bnVsbA.AA"]
)
async def test_what_is_nearly_empty_is_no_token(desk: Desk, text: str) -> None:
    assert await desk.judge(text) is None
    assert desk.loads == 0


async def test_base64_has_one_spelling(desk: Desk) -> None:
    """Else one token would be many, and whoever remembered it by its text would take each for another."""
    # Lengths that leave bits over in the last character, which a lenient reader ignores.
    for mesh in ("m", "me", "mes"):
        holder = Holder(mesh_uid=mesh, member_pubkey=MEMBER, key=ANN.key, expires_at=None)
        token = desk.tokens.issue(holder, CLAIM)
        assert await desk.judge(token, holder)
        head, _, signature = token.rpartition(".")
        payload = head.removeprefix(PREFIX)
        spellings = {f"{PREFIX}{payload}{'=' * pad}.{signature}" for pad in (1, 2)}
        spellings |= {f"{head}.{signature}{'=' * pad}" for pad in (1, 2)}
        spellings |= {f"{head}.{signature[:9]}{odd}{signature[9:]}" for odd in "\n -_+/*"}
        for part, other in ((payload, signature), (signature, payload)):
            raw = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
            for last in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_":
                odd = part[:-1] + last
                if base64.urlsafe_b64decode(odd + "=" * (-len(odd) % 4)) == raw and odd != part:
                    spellings.add(f"{PREFIX}{odd}.{other}" if part is payload else f"{PREFIX}{other}.{odd}")
        for spelling in spellings - {token}:
            assert await desk.judge(spelling, holder) is None, spelling


async def test_of_those_who_sign_by_another_key_none_is_believed(desk: Desk) -> None:
    assert await desk.judge(forge(SEEDS[1])) is None
    assert await desk.judge(forge(SEEDS[1], kid=KeyPair(SEEDS[0]).pubkey[:16])) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": ManualClock().wall + TTL + 1},
        {"iat": ManualClock().wall - 1},
        {"iat": ManualClock().wall - DAY_MS, "exp": ManualClock().wall + DAY_MS},
        {"jti": "01LEASE"},
        {"jti": "01LEASE."},
        {"jti": "01LEASE.-7"},
        {"jti": "01LEASE.x"},
        {"jti": 7},
        {"exp": "soon"},
        {"att": ManualClock().wall},
        {"sub": None},
    ],
    ids=str,
)
async def test_even_what_our_own_key_signed_is_read_with_care(desk: Desk, changes: dict[str, object]) -> None:
    assert await desk.judge(forge(SEEDS[0], **changes)) is None


# --- keys that change ------------------------------------------------------------------------------


async def test_after_a_rotation_both_keys_are_good_and_the_new_one_signs(desk: Desk) -> None:
    before = desk.tokens.issue(ANN, CLAIM)
    desk.kept = [SEEDS[1], SEEDS[0]]
    await desk.tokens.reload()
    after = desk.tokens.issue(ANN, CLAIM)
    assert await desk.judge(before) == await desk.judge(after) == Resumable(CLAIM, None)
    only_new = Desk(desk.clock, SEEDS[1])
    assert await only_new.judge(after)
    assert await only_new.judge(before) is None


async def test_after_two_rotations_the_first_key_is_good_no_more(desk: Desk) -> None:
    first = desk.tokens.issue(ANN, CLAIM)
    desk.kept = [SEEDS[2], SEEDS[1]]
    await desk.tokens.reload()
    assert await desk.judge(first) is None


async def test_a_key_that_another_broker_made_is_looked_for_when_its_first_token_comes() -> None:
    clock = ManualClock()
    here, there = Desk(clock), Desk(clock, SEEDS[1], SEEDS[0])
    here.kept = there.kept
    token = there.tokens.issue(ANN, CLAIM)
    clock.advance(RELOAD_AFTER_MS)
    assert await here.judge(token) == Resumable(CLAIM, None)
    assert here.loads == 1


async def test_whoever_names_keys_that_there_are_not_has_them_looked_for_once_a_second_at_most(desk: Desk) -> None:
    for number in range(5 * 10):
        desk.clock.advance(RELOAD_AFTER_MS // 10)
        assert await desk.judge(forge(SEEDS[1], kid=f"{number:016x}")) is None
    assert desk.loads == 5
    desk.clock.wall += DAY_MS  # by a clock that knows no steps
    assert await desk.judge(forge(SEEDS[1])) is None
    assert desk.loads == 5


async def test_a_known_key_is_not_looked_for(desk: Desk) -> None:
    desk.clock.advance(RELOAD_AFTER_MS)
    assert await desk.judge(desk.tokens.issue(ANN, CLAIM))
    assert desk.loads == 0


def test_keys_are_read_from_hex_with_commas() -> None:
    one, two = (seed.hex() for seed in SEEDS[:2])
    assert parse_seeds(one) == SEEDS[:1]
    assert parse_seeds(f"{one}, {two}") == SEEDS[:2]
    assert parse_seeds(f" {one.upper()}\n") == SEEDS[:1]


@pytest.mark.parametrize(
    "text", ["", ",", "ab", "x" * 64, "a" * 63, "a" * 66, f"{'a' * 64},", f"{'a' * 64};{'b' * 64}"]
)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="hex"):
        parse_seeds(text)
