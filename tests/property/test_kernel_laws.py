"""Laws that hold for every input: totality, determinism, tokens that only grow, states that have their exits."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from claudemesh.kernel.admission import Busy, Conflict, Fresh, Replay, Standing
from claudemesh.kernel.errors import TransitionRefused
from claudemesh.kernel.fingerprint import Fingerprint, Kind, Priority, SendRequest, fingerprint_send
from claudemesh.kernel.ids import next_ulid, render_ulid
from claudemesh.kernel.lease import NEVER_HELD, Acquire, Fence, Granted, Held, Lost, Reclaim, Release, Renew, judge
from claudemesh.kernel.outbox import ADMISSION, MACHINE, OutboxEvent, OutboxState
from claudemesh.kernel.retention import MARGIN_HOURS_MIN, RetentionScoped, derive_max_age
from claudemesh.kernel.retry import BACKOFF_CAP_MS, derive_backoff_ms

STEPS = settings(max_examples=200, stateful_step_count=50, deadline=None, database=None)
MANY = settings(max_examples=2_000, deadline=None, database=None)


class LeaseLaws(RuleBasedStateMachine):
    """Three owners, a clock that also steps back, and a memory of every grant as a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.lease = NEVER_HELD
        self.now_ms = 0
        self.grants: list[tuple[int, str]] = []

    @rule(step_ms=st.integers(-50, 100))
    def time_passes(self, step_ms: int) -> None:
        self.now_ms += step_ms

    @rule(owner=st.sampled_from("abc"), ttl_ms=st.integers(1, 100))
    def acquire(self, owner: str, ttl_ms: int) -> None:
        before = self.lease
        verdict = judge(before, Acquire(owner, ttl_ms), self.now_ms)
        assert verdict == judge(before, Acquire(owner, ttl_ms), self.now_ms)
        assert isinstance(verdict, Held) == before.is_live(self.now_ms)
        if isinstance(verdict, Granted):
            assert verdict.lease.token == before.token + 1
            self.lease = verdict.lease
            self.grants.append((verdict.lease.token, owner))

    @rule(owner=st.sampled_from("abc"), ttl_ms=st.integers(1, 100))
    def reclaim(self, owner: str, ttl_ms: int) -> None:
        before = self.lease
        verdict = judge(before, Reclaim(owner, ttl_ms), self.now_ms)
        is_anothers = before.is_live(self.now_ms) and before.owner != owner
        assert isinstance(verdict, Held) == is_anothers
        if isinstance(verdict, Granted):
            assert verdict.lease.token == before.token + 1
            assert verdict.lease.is_live(self.now_ms)
            if before.is_live(self.now_ms):
                assert verdict.lease.expires_at_ms >= before.expires_at_ms
            self.lease = verdict.lease
            self.grants.append((verdict.lease.token, owner))

    @rule(owner=st.sampled_from("abc"), age=st.integers(0, 2), kind=st.sampled_from(["renew", "release", "fence"]))
    def act_under_a_token(self, owner: str, age: int, kind: str) -> None:
        before, token = self.lease, self.lease.token - age
        request = {"renew": Renew(owner, token, 40), "release": Release(owner, token), "fence": Fence(owner, token)}
        verdict = judge(before, request[kind], self.now_ms)
        may = bool(self.grants) and self.grants[-1] == (token, owner) and before.is_live(self.now_ms)
        assert isinstance(verdict, Granted if may else Lost)
        if isinstance(verdict, Granted):
            assert verdict.lease.token == before.token
            if kind == "renew":
                assert verdict.lease.expires_at_ms >= before.expires_at_ms
            if kind == "release":
                assert not verdict.lease.is_live(self.now_ms)
            self.lease = verdict.lease

    @invariant()
    def every_token_was_granted_once_in_order(self) -> None:
        assert [token for token, _ in self.grants] == list(range(1, len(self.grants) + 1))


def test_a_lease_has_one_owner_and_its_token_only_grows() -> None:
    run_state_machine_as_test(LeaseLaws, settings=STEPS)


class OutboxLaws(RuleBasedStateMachine):
    """Rows by id in a plain dict, moved and asked for at random."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, Standing[OutboxState]] = {}

    @rule(key=st.sampled_from("xyz"), body=st.sampled_from([b"\1", b"\2"]))
    def ask(self, key: str, body: bytes) -> None:
        presented = Fingerprint(body * 32)
        standing = self.rows.get(key)
        verdict = ADMISSION.judge(standing, presented)
        assert isinstance(verdict, Fresh) == (standing is None)
        if standing is None:
            self.rows[key] = Standing(MACHINE.initial, presented)
        elif standing.fingerprint != presented:
            assert isinstance(verdict, Conflict)
        elif standing.state in (OutboxState.PENDING, OutboxState.INFLIGHT):
            assert isinstance(verdict, Busy)
        else:
            assert isinstance(verdict, Replay) == (standing.state is OutboxState.DONE)

    @rule(key=st.sampled_from("xyz"), event=st.sampled_from(OutboxEvent))
    def move(self, key: str, event: OutboxEvent) -> None:
        standing = self.rows.get(key)
        if standing is None:
            return
        try:
            following = MACHINE.step(standing.state, event)
        except TransitionRefused:
            assert standing.state not in MACHINE.sources(event)
            return
        assert standing.state not in MACHINE.final
        self.rows[key] = Standing(following, standing.fingerprint)


def test_an_id_is_never_released_and_a_final_row_never_moves() -> None:
    run_state_machine_as_test(OutboxLaws, settings=STEPS)


def test_every_state_of_the_outbox_can_come_to_an_end() -> None:
    for start in OutboxState:
        seen = {start}
        while found := {to for (state, _), to in MACHINE.table.items() if state in seen} - seen:
            seen |= found
        assert seen & MACHINE.final


@MANY
@given(st.lists(st.tuples(st.integers(0, 2**48 - 1), st.integers(0, 2**80 - 1)), min_size=2, max_size=20))
def test_ulids_grow_whatever_clock_and_dice_do(steps: list[tuple[int, int]]) -> None:
    last, given_ = 0, []
    for wall_ms, entropy in steps:
        if last >> 80 < 2**48 - 1:
            last = next_ulid(last, wall_ms, entropy)
            given_.append(render_ulid(last))
    assert given_ == sorted(set(given_))


@MANY
@given(st.integers(1, 10**12), st.floats(0, 1, exclude_max=True), st.none() | st.integers(0, 10**9))
def test_a_backoff_lies_below_the_cap_and_never_before_retry_after(
    attempts: int, jitter: float, retry_after_ms: int | None
) -> None:
    wait_ms = derive_backoff_ms(attempts, jitter, retry_after_ms)
    assert 0 <= wait_ms - (retry_after_ms or 0) < BACKOFF_CAP_MS


@given(st.integers(7, 100_000))
def test_no_row_is_sent_within_a_day_of_the_end_of_the_window(days: int) -> None:
    hours = derive_max_age(RetentionScoped(days)).hours
    assert 0 < hours <= days * 24 - MARGIN_HOURS_MIN
    assert derive_max_age(RetentionScoped(days + 1)).hours > hours


FIELDS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=4)
REQUESTS = st.builds(
    SendRequest,
    kind=st.sampled_from(Kind),
    ref=FIELDS,
    body=FIELDS,
    reply_to=FIELDS,
    priority=st.sampled_from(Priority),
    meta=st.none() | st.dictionaries(FIELDS, FIELDS, max_size=2),
    mentions=st.just(()),
)


@MANY
@given(REQUESTS, REQUESTS)
def test_two_sends_share_a_fingerprint_exactly_when_they_ask_for_the_same(
    one: SendRequest, two: SendRequest
) -> None:
    def asked(request: SendRequest) -> tuple[object, ...]:
        meta = request.meta or None
        return request.kind, request.ref, request.body, request.reply_to, request.priority, meta

    assert (fingerprint_send(one) == fingerprint_send(two)) == (asked(one) == asked(two))
