"""The rules of the broker that need no store."""

import pytest

from claudemesh.broker.model import Claim, ConnectionPolicy, DeliveryState, Member, RecipientReceipt, Role, Sender
from claudemesh.broker.policy import (
    HeldLease,
    Meeting,
    derive_acked,
    derive_grant,
    derive_message_state,
    is_acked,
    is_attempt,
    judge_ack,
    judge_manager,
    judge_meeting,
    judge_member_change,
    judge_renew,
    judge_settle,
    judge_size,
    judge_target,
    plan_pruned,
    present,
)
from claudemesh.kernel.errors import Forbidden, InvalidRequest, LeaseLost, NotFound, PayloadTooLarge, Revoked
from claudemesh.kernel.fingerprint import Kind, SendRequest
from claudemesh.kernel.lease import Lease


@pytest.mark.req("N4")
@pytest.mark.parametrize(
    ("policy", "new_instance", "meeting"),
    [
        ("prefer_newest", "same", Meeting.REPLACED),
        ("prefer_oldest", "same", Meeting.REPLACED),
        ("allow_concurrent", "same", Meeting.REPLACED),
        ("prefer_newest", "other", Meeting.SUPERSEDED),
        ("prefer_oldest", "other", Meeting.REFUSED),
        ("allow_concurrent", "other", Meeting.SHARED),
    ],
)
def test_what_becomes_of_the_connection_that_stands(policy: str, new_instance: str, meeting: Meeting) -> None:
    assert judge_meeting(ConnectionPolicy(policy), "same", new_instance) is meeting


@pytest.mark.req("Q6")
@pytest.mark.parametrize(
    ("states", "least"),
    [
        ([], "accepted"),
        (["acted", "read"], "read"),
        (["delivered", "acted"], "delivered"),
        (["dead_letter", "delivered"], "dead_letter"),
        (["dead_letter", "accepted"], "accepted"),
    ],
)
def test_a_message_is_as_far_as_its_least_advanced_recipient(states: list[str], least: str) -> None:
    recipients = [RecipientReceipt(name="n", pubkey="k", state=DeliveryState(state)) for state in states]
    assert derive_message_state(recipients) == least


@pytest.mark.req("Q1")
def test_an_attempt_counts_only_when_the_socket_lived_on() -> None:
    assert not is_attempt(pushed_at_ms=1_000, last_life_ms=500)
    assert not is_attempt(pushed_at_ms=1_000, last_life_ms=30_999)
    assert is_attempt(pushed_at_ms=1_000, last_life_ms=31_000)


@pytest.mark.parametrize(
    "changes",
    [
        {"meta": {"mentions": "bob"}},
        {"meta": {"mentions": [1]}},
        {"meta": {"mentions": ["m"] * 257}},
        {"meta": {"n": float("nan")}},
        {"meta": {"n": 2**60}},
        {"body": "a\0b"},
        {"body": "\ud800"},
        {"ref": "\0"},
    ],
)
def test_what_no_store_could_hold_is_no_message(changes: dict[str, object]) -> None:
    fields = {"kind": Kind.DM, "ref": "k", "body": "b"} | changes
    with pytest.raises(InvalidRequest):
        present("id", SendRequest(**fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("sender_seq", [-1, 2**63])
def test_a_sequence_number_beyond_the_stores_is_refused(sender_seq: int) -> None:
    with pytest.raises(InvalidRequest):
        present("id", SendRequest(kind=Kind.DM, ref="k", body="b"), sender_seq=sender_seq)


def test_the_size_of_a_message_is_that_of_its_body_in_utf8() -> None:
    message = present("id", SendRequest(kind=Kind.DM, ref="k", body="é" * 10))
    assert judge_size(message, 20) is None
    assert isinstance(judge_size(message, 19), PayloadTooLarge)
    with pytest.raises(InvalidRequest):
        present("id", SendRequest(kind=Kind.DM, ref="k", body="b", reply_to="r" * 129))


def test_the_same_mention_twice_is_one() -> None:
    meta: dict[str, object] = {"mentions": ["bob", "ann", "bob"]}
    message = present("id", SendRequest(kind=Kind.DM, ref="k", body="b", meta=meta))  # type: ignore[arg-type]
    assert message.mentions == ("bob", "ann")


# --- the work of queues --------------------------------------------------------------------------------------

ANN, BEN, UNTIL = 1, 2, 1_000


def held(
    owner_id: int | None = ANN, *, is_settled: bool = False, is_acted: bool = False, is_dead: bool = False
) -> HeldLease:
    return HeldLease(owner_id, 7, UNTIL, is_settled, is_acted, is_dead)


def claim(worker: int = ANN, token: int = 7) -> Claim:
    return Claim(Sender(1, worker), "jobs", "b1", token)


@pytest.mark.req("Q3")
@pytest.mark.parametrize(
    ("stands", "says", "now_ms", "reason"),
    [
        (held(), claim(), UNTIL - 1, None),
        (held(), claim(), UNTIL, "expired"),
        (held(), claim(token=6), 0, "stale_token"),
        (held(), claim(BEN), 0, "not_owner"),
        (held(None), claim(), 0, "not_owner"),
        (held(is_settled=True), claim(), 0, "settled"),
        (held(is_settled=True), claim(), UNTIL, "expired"),
    ],
)
def test_work_is_settled_and_renewed_only_by_whoever_holds_it_and_while_it_is_open(
    stands: HeldLease, says: Claim, now_ms: int, reason: str | None
) -> None:
    refusal, renewed = judge_settle(stands, says, now_ms), judge_renew(stands, says, 500, now_ms)
    if reason is None:
        assert refusal is None
        assert renewed == Lease(str(ANN), 7, now_ms + 500)
    else:
        assert isinstance(refusal, LeaseLost)
        assert isinstance(renewed, LeaseLost)
        assert refusal.extras["reason"] == renewed.extras["reason"] == reason


@pytest.mark.req("Q3")
def test_an_ack_was_said_before_only_by_the_worker_and_under_the_token_that_did_it() -> None:
    done = held(is_settled=True, is_acted=True)
    assert is_acked(done, claim())
    assert not is_acked(done, claim(BEN))
    assert not is_acked(done, claim(token=6))
    assert not is_acked(held(is_settled=True), claim()), "it was handed over, not done"
    assert not is_acked(held(is_settled=True, is_dead=True), claim()), "it was given up, not done"


@pytest.mark.req("Q3", "Q6")
@pytest.mark.parametrize(
    ("stands", "says", "reason"),
    [
        (held(), claim(), None),
        (held(is_settled=True), claim(), None),
        (held(is_settled=True), claim(BEN), "not_owner"),
        (held(is_settled=True), claim(token=6), "stale_token"),
        (held(is_settled=True, is_acted=True), claim(), "settled"),
        (held(is_settled=True, is_dead=True), claim(), "settled"),
        (held(None, is_settled=True, is_dead=True), claim(), "not_owner"),
    ],
)
def test_what_was_handed_over_is_acked_by_who_did_that_and_by_nobody_else(
    stands: HeldLease, says: Claim, reason: str | None
) -> None:
    refusal = judge_ack(stands, says, UNTIL - 1)
    assert (refusal and refusal.extras["reason"]) == reason


@pytest.mark.req("Q3")
def test_no_lease_ends_for_what_was_handed_over() -> None:
    assert judge_ack(held(is_settled=True), claim(), UNTIL) is None
    assert judge_ack(held(), claim(), UNTIL) is not None
    assert judge_settle(held(is_settled=True), claim(), 0) is not None, "nobody gives it back"


@pytest.mark.req("Q3", "Q6")
def test_handing_over_is_acting_only_upon_what_was_acted_before() -> None:
    assert derive_acked(held(), handed_over=False) is DeliveryState.ACTED
    assert derive_acked(held(), handed_over=True) is DeliveryState.DELIVERED
    assert derive_acked(held(is_settled=True), handed_over=False) is DeliveryState.ACTED
    assert derive_acked(held(is_settled=True, is_acted=True), handed_over=True) is DeliveryState.ACTED


@pytest.mark.req("Q3")
def test_every_grant_has_a_greater_token() -> None:
    assert derive_grant(Sender(1, ANN), 7, 500, 10) == Lease(str(ANN), 8, 510)


# --- what is forgotten ---------------------------------------------------------------------------------------


@pytest.mark.req("B7")
@pytest.mark.parametrize("still_needed", [None, 101])
def test_ids_are_forgotten_up_to_the_first_that_is_still_needed(still_needed: int | None) -> None:
    rows = [(4, 1, "a", 99), (6, None, None, None), (7, 1, "b", 100), (8, 2, "c", still_needed), (9, 2, "d", 1)]
    assert plan_pruned(rows, 3, 100) == (7, [(1, "a"), (1, "b")])


@pytest.mark.req("B7")
def test_a_tombstone_whose_id_is_gone_already_is_passed_over() -> None:
    assert plan_pruned([], 3, 100) == (3, [])
    assert plan_pruned([(5, None, None, None)], 3, 100) == (5, [])


# --- who may change what -------------------------------------------------------------------------------------

OWNER, ADMIN, MEMBER = Role.OWNER, Role.ADMIN, Role.MEMBER


def member(id_: int, role: Role, revoked_at: int | None = None) -> Member:
    return Member(
        id=id_,
        uid=f"u{id_}",
        mesh_id=1,
        pubkey=f"k{id_}",
        name=f"n{id_}",
        role=role,
        joined_at=0,
        revoked_at=revoked_at,
    )


@pytest.mark.req("Q8")
@pytest.mark.parametrize(
    ("actor", "target", "becomes", "allowed"),
    [
        (OWNER, OWNER, None, True),
        (OWNER, OWNER, MEMBER, True),
        (OWNER, MEMBER, OWNER, True),
        (OWNER, ADMIN, None, True),
        (ADMIN, OWNER, None, False),
        (ADMIN, OWNER, ADMIN, False),
        (ADMIN, OWNER, OWNER, False),
        (ADMIN, MEMBER, OWNER, False),
        (ADMIN, MEMBER, ADMIN, True),
        (ADMIN, ADMIN, MEMBER, True),
        (ADMIN, ADMIN, None, True),
        (MEMBER, MEMBER, None, False),
        (MEMBER, MEMBER, ADMIN, False),
        (MEMBER, OWNER, None, False),
    ],
)
def test_owners_and_admins_change_others_and_only_owners_touch_owners(
    actor: Role,
    target: Role,
    becomes: Role | None,
    allowed: bool,  # noqa: FBT001  a column of the table
) -> None:
    verdict = judge_member_change(member(1, actor), member(2, target), becomes, owners=2)
    assert (verdict is None) is allowed
    assert verdict is None or type(verdict) is Forbidden
    gone = judge_member_change(member(1, actor, revoked_at=1), member(2, target), becomes, owners=2)
    assert type(gone) is Revoked


@pytest.mark.req("Q8")
@pytest.mark.parametrize("role", Role)
def test_everybody_may_leave_or_step_down_but_the_last_owner(role: Role) -> None:
    me = member(1, role)
    assert judge_member_change(me, me, None, owners=2) is None
    assert judge_member_change(me, me, MEMBER, owners=2) is None
    alone = [judge_member_change(me, me, becomes, owners=1) for becomes in (None, MEMBER, ADMIN)]
    if role is OWNER:
        assert [error.extras.get("reason") for error in alone if error] == ["last_owner"] * 3
        assert judge_member_change(me, me, OWNER, owners=1) is None
    else:
        assert alone[:2] == [None, None]
    assert (judge_member_change(me, me, OWNER, owners=2) is None) is (role is OWNER)


@pytest.mark.req("Q8")
def test_the_mesh_itself_is_changed_by_owners_and_admins() -> None:
    assert [judge_manager(member(1, role)) is None for role in (OWNER, ADMIN, MEMBER)] == [True, True, False]
    assert type(judge_manager(member(1, OWNER, revoked_at=1))) is Revoked


@pytest.mark.req("Q8")
def test_who_was_revoked_gets_no_role_and_may_be_revoked_again() -> None:
    here, gone = member(1, MEMBER), member(2, MEMBER, revoked_at=1)
    assert [judge_target(here, role) for role in (ADMIN, None)] == [here, here]
    assert judge_target(gone, None) is gone
    assert type(judge_target(gone, ADMIN)) is NotFound
    assert [type(judge_target(None, role)) for role in (ADMIN, None)] == [NotFound] * 2
