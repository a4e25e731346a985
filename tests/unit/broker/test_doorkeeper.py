"""Who speaks: by a token that stands for the rest of the proof, or by all of the proof; and by which clock."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from claudemesh.broker.hello import Doorkeeper, HelloRefused, Proven
from claudemesh.broker.model import Member, Mesh, Role
from claudemesh.broker.presence.model import ResumeClaim
from claudemesh.broker.presence.tokens import Holder, ResumeTokens
from claudemesh.kernel.clock import DAY_MS
from claudemesh.runtime.keys import KeyPair
from claudemesh.wire.frames import (
    ATTESTATION_MAX_MS,
    CLOCK_SKEW_MAX_MS,
    CLOSE_BAD_FRAME,
    Attestation,
    Hello,
    SessionInfo,
)
from claudemesh.wire.signing import attestation_bytes, hello_bytes
from tests.doubles import ManualClock

TTL = 90_000
NONCE = "nonce"
CLAIM = ResumeClaim("01LEASE", 3)
MEMBER, SESSION, STRANGER = (KeyPair(bytes([number]) * 32) for number in (1, 2, 3))
MESH = Mesh(id=1, uid="mesh", slug="demo")
HOUR_MS = 3_600_000


class Registry:
    """Who is a member, and whose session keys are whose."""

    def __init__(self) -> None:
        self.revoked_at: int | None = None

    async def mesh(self, uid: str) -> Mesh | None:
        return MESH if uid == MESH.uid else None

    async def member(self, mesh_id: int, pubkey: str) -> Member | None:
        if pubkey != MEMBER.pubkey:
            return None
        return Member(
            id=1,
            uid="u1",
            mesh_id=mesh_id,
            pubkey=pubkey,
            name="ann",
            role=Role.MEMBER,
            joined_at=0,
            revoked_at=self.revoked_at,
        )


class Door:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.registry: Any = Registry()
        self.tokens = ResumeTokens(self._load, [b"k" * 32], self.clock, TTL)
        self.keeper = Doorkeeper(self.registry, self.tokens, self.clock)

    async def _load(self) -> Sequence[bytes]:
        return [b"k" * 32]

    def attest(self, left_ms: int = HOUR_MS, session: KeyPair = SESSION, by: KeyPair = MEMBER) -> Attestation:
        plain = Attestation(
            session_pubkey=session.pubkey,
            parent_member_pubkey=MEMBER.pubkey,
            expires_at=self.clock.wall + left_ms,
            signature="",
        )
        return replace(plain, signature=by.sign(attestation_bytes(plain)))

    def token(
        self,
        key: KeyPair = SESSION,
        left_ms: int | None = 2 * HOUR_MS,
        mesh: str = "mesh",
        member: KeyPair | None = None,
    ) -> str:
        expires_at = None if left_ms is None else self.clock.wall + left_ms
        pubkey = (member or MEMBER).pubkey
        holder = Holder(mesh_uid=mesh, member_pubkey=pubkey, key=key.pubkey, expires_at=expires_at)
        return self.tokens.issue(holder, CLAIM)

    def hello(self, key: KeyPair = SESSION, **fields: Any) -> Hello:  # noqa: ANN401  of the hello
        """Return a hello of the member or of a session, signed by it."""
        of_session = (
            {} if key is MEMBER else {"session_pubkey": key.pubkey, "attestation": self.attest(session=key)}
        )
        said: dict[str, Any] = {
            "mesh_id": "mesh",
            "member_pubkey": MEMBER.pubkey,
            "instance_id": "one",
            "timestamp_ms": self.clock.wall,
            "signature": "",
        }
        plain = Hello(**(said | of_session | fields))
        return replace(plain, signature=key.sign(hello_bytes(NONCE, plain)))

    async def verify(self, hello: Hello) -> Proven:
        return await self.keeper.verify(hello, NONCE)

    async def refusal(self, hello: Hello) -> HelloRefused:
        with pytest.raises(HelloRefused) as refused:
            await self.verify(hello)
        return refused.value


@pytest.fixture
def door() -> Door:
    return Door()


# --- with a token and without ----------------------------------------------------------------------


async def test_without_a_token_all_of_the_proof_is_asked_for_and_given(door: Door) -> None:
    info = SessionInfo(display_name="laptop")
    hello = door.hello(session=info, presence_only=True)
    proven = await door.verify(hello)
    identity = proven.arrival.identity
    assert (proven.arrival.claim, proven.arrival.must_resume, proven.unproven) == (None, False, None)
    assert (identity.member.uid, identity.session_pubkey, identity.instance_id) == ("u1", SESSION.pubkey, "one")
    assert hello.attestation is not None
    assert identity.expires_at == hello.attestation.expires_at
    assert (identity.is_presence_only, identity.info) == (True, {"display_name": "laptop"})


@pytest.mark.req("P4")
@pytest.mark.parametrize("key", [MEMBER, SESSION], ids=["member", "session"])
async def test_with_both_a_token_and_the_proof_the_lease_is_claimed_and_nothing_depends_on_it(
    door: Door, key: KeyPair
) -> None:
    hello = door.hello(key, resume_token=door.token(key, None if key is MEMBER else HOUR_MS // 2))
    proven = await door.verify(hello)
    assert (proven.arrival.claim, proven.arrival.must_resume, proven.unproven) == (CLAIM, False, None)
    given = None if hello.attestation is None else hello.attestation.expires_at
    assert proven.arrival.identity.expires_at == given, "what the member says now counts, not what it said then"


@pytest.mark.req("P4", "P6")
@pytest.mark.parametrize("wrong", ["expired", "missing", "forged", "skewed"])
async def test_a_good_token_stands_for_the_rest_of_the_proof_if_the_lease_can_be_taken_up(
    door: Door, wrong: str
) -> None:
    token = door.token()
    fields: dict[str, Any] = {
        "expired": {"attestation": door.attest(-1)},
        "missing": {"attestation": None},
        "forged": {"attestation": door.attest(by=STRANGER)},
        "skewed": {"timestamp_ms": door.clock.wall + CLOCK_SKEW_MAX_MS + 1},
    }[wrong]
    reason = {"expired": "attestation_expired", "skewed": "clock_skew"}.get(wrong, "bad_attestation")
    proven = await door.verify(door.hello(resume_token=token, **fields))
    assert (proven.arrival.claim, proven.arrival.must_resume) == (CLAIM, True)
    assert proven.unproven is not None
    assert proven.unproven.reason == reason
    assert proven.arrival.identity.expires_at == door.clock.wall + 2 * HOUR_MS, "no longer than it was vouched for"
    refused = await door.refusal(door.hello(**fields))
    assert refused.reason == reason, "and without the token it is refused"


def bad_tokens(door: Door) -> dict[str, str]:
    good = door.token()
    return {
        "anything": "anything",
        "empty": "",
        "cut off": good[:-1],
        "of the member": door.token(MEMBER),
        "of another session": door.token(STRANGER),
        "of another mesh": door.token(mesh="other"),
        "vouched for no more": door.token(left_ms=0),
        "large": good + "A" * 1_000_000,
    }


@pytest.mark.req("P4", "P6")
@pytest.mark.parametrize("kind", [*bad_tokens(Door())])
async def test_a_bad_token_is_as_none_and_what_is_bad_about_it_is_never_told(door: Door, kind: str) -> None:
    token = bad_tokens(door)[kind]
    proven = await door.verify(door.hello(resume_token=token))
    assert (proven.arrival.claim, proven.arrival.must_resume, proven.unproven) == (None, False, None)
    refused = await door.refusal(door.hello(resume_token=token, attestation=door.attest(-1)))
    assert refused.reason == "attestation_expired"
    assert set(refused.data) == {"server_time_ms"}


@pytest.mark.req("P6")
async def test_an_expired_token_is_as_none(door: Door) -> None:
    token = door.token()
    door.clock.advance(TTL)
    assert (await door.verify(door.hello(resume_token=token))).arrival.claim is None
    refused = await door.refusal(door.hello(resume_token=token, attestation=None))
    assert refused.reason == "bad_attestation"


# --- a token that was captured ---------------------------------------------------------------------


@pytest.mark.req("P6")
async def test_a_captured_token_opens_nothing_without_the_key_that_it_names(door: Door) -> None:
    token = door.token()
    own = door.hello(STRANGER, resume_token=token)
    assert (await door.verify(own)).arrival.claim is None, "another session of the member takes no lease over"
    pretended = replace(own, session_pubkey=SESSION.pubkey, attestation=door.attest())
    assert (await door.refusal(pretended)).reason == "bad_signature"


@pytest.mark.req("P6")
async def test_a_token_put_in_or_changed_after_signing_voids_the_hello(door: Door) -> None:
    for signed in (door.hello(), door.hello(resume_token="another")):  # noqa: S106  no password
        assert (await door.refusal(replace(signed, resume_token=door.token()))).reason == "bad_signature"
    captured = door.hello(resume_token=door.token())
    with pytest.raises(HelloRefused, match="bad_signature"):
        await door.keeper.verify(captured, "the nonce of another connection")


@pytest.mark.req("P6")
async def test_a_good_token_makes_nobody_a_member(door: Door) -> None:
    door.registry.revoked_at = 1
    assert (await door.refusal(door.hello(resume_token=door.token()))).reason == "revoked"
    elsewhere = door.hello(mesh_id="elsewhere", resume_token=door.token(mesh="elsewhere"))
    assert (await door.refusal(elsewhere)).reason == "unknown_member"


@pytest.mark.req("P6")
async def test_a_token_of_when_a_session_spoke_for_another_member_is_none(door: Door) -> None:
    proven = await door.verify(door.hello(resume_token=door.token(member=KeyPair.generate())))
    assert proven.arrival.claim is None


@pytest.mark.parametrize(
    "info", [SessionInfo(cwd="é" * 1_024, groups=["ü" * 128] * 16), SessionInfo(topics=["x" * 128] * 32)]
)
async def test_a_session_that_says_too_much_of_itself_is_refused(door: Door, info: SessionInfo) -> None:
    refused = await door.refusal(door.hello(session=info))
    assert (refused.reason, refused.close_code) == ("bad_frame", 4400)


# --- by which clock --------------------------------------------------------------------------------


@pytest.mark.req("P10")
@pytest.mark.parametrize(
    ("off_ms", "is_near"), [(0, True), (60_000, True), (-60_000, True), (60_001, False), (-60_001, False)]
)
async def test_a_hello_is_of_now_by_a_minute(
    door: Door,
    off_ms: int,
    is_near: bool,  # noqa: FBT001  a column of the table
) -> None:
    hello = door.hello(timestamp_ms=door.clock.wall + off_ms)
    if is_near:
        assert (await door.verify(hello)).unproven is None
    else:
        refused = await door.refusal(hello)
        assert (refused.reason, refused.data) == ("clock_skew", {"server_time_ms": door.clock.wall})


@pytest.mark.req("P10")
@pytest.mark.parametrize("jump_ms", [DAY_MS, -DAY_MS, 30 * DAY_MS])
async def test_a_wall_clock_that_was_set_while_we_run_keeps_nobody_out(door: Door, jump_ms: int) -> None:
    right = door.hello()
    door.clock.wall += jump_ms
    assert (await door.verify(right)).unproven is None, "of somebody whose clock was not set"
    assert (await door.verify(door.hello())).unproven is None, "and of somebody whose clock goes by ours"
    between = door.hello(timestamp_ms=door.clock.wall - jump_ms // 2)
    assert (await door.refusal(between)).reason == "clock_skew"


@pytest.mark.req("P10")
@pytest.mark.parametrize("jump_ms", [DAY_MS, -DAY_MS])
async def test_an_attestation_is_judged_by_the_time_that_its_hello_is(door: Door, jump_ms: int) -> None:
    over, good, too_long = (
        door.hello(attestation=door.attest(left_ms))
        for left_ms in (0, 1_000, ATTESTATION_MAX_MS + CLOCK_SKEW_MAX_MS + 1)
    )
    door.clock.wall += jump_ms
    assert (await door.verify(good)).unproven is None
    assert (await door.refusal(over)).reason == "attestation_expired"
    assert (await door.refusal(too_long)).reason == "attestation_expired"


@pytest.mark.req("P10")
@pytest.mark.parametrize("jump_ms", [0, DAY_MS, -DAY_MS])
@pytest.mark.parametrize("has_token", [False, True])
async def test_for_how_long_a_session_is_vouched_for_does_not_depend_on_how_the_wall_clock_is_set(
    door: Door,
    jump_ms: int,
    has_token: bool,  # noqa: FBT001  a column of the table
) -> None:
    token = door.token(left_ms=2 * HOUR_MS) if has_token else None
    proven, resuming = door.hello(resume_token=token), door.hello(resume_token=token, attestation=None)
    own = door.hello(MEMBER)
    door.clock.wall += jump_ms
    assert (await door.verify(proven)).expires_in_ms == HOUR_MS
    assert (await door.verify(own)).expires_in_ms is None
    if has_token:
        assert (await door.verify(resuming)).expires_in_ms == 2 * HOUR_MS


# --- its form --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"presence_only": True},
        {"session": SessionInfo()},
        {"instance_id": ""},
        {"instance_id": "x" * 129},
    ],
    ids=str,
)
async def test_what_only_a_session_may_say_is_no_frame_of_a_member(door: Door, fields: dict[str, Any]) -> None:
    refused = await door.refusal(door.hello(MEMBER, **fields))
    assert (refused.reason, refused.close_code) == ("bad_frame", CLOSE_BAD_FRAME)


@pytest.mark.parametrize("field", ["mesh_id", "instance_id", "resume_token"])
async def test_a_zero_byte_is_refused_before_anything_is_framed(door: Door, field: str) -> None:
    hello = replace(door.hello(), **{field: "a\0b"})  # type: ignore[arg-type]
    assert (await door.refusal(hello)).reason == "bad_frame"
