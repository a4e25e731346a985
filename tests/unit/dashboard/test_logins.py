"""Codes and bearers: once, not for long, and gone when their owner says so."""

import asyncio

import pytest

from claudemesh.dashboard import logins as limits
from claudemesh.dashboard.logins import NAME, Logins
from claudemesh.kernel.errors import BadToken
from tests.doubles import ManualClock

WITHIN_S = 30


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def logins(clock: ManualClock) -> Logins:
    return Logins(clock)


def login(logins: Logins) -> bytes:
    return logins.trade(logins.mint_code()).encode()


@pytest.mark.req("C4")
def test_a_code_is_good_once(logins: Logins) -> None:
    code = logins.mint_code()
    bearer = logins.trade(code)
    with pytest.raises(BadToken):
        logins.trade(code)
    assert logins.identify(bearer.encode()) == NAME, "whoever came first stays in"


@pytest.mark.req("C4")
def test_a_code_is_good_for_a_short_while(logins: Logins, clock: ManualClock) -> None:
    early, late = logins.mint_code(), logins.mint_code()
    clock.advance(limits.CODE_MS - 1)
    logins.trade(early)
    clock.advance(1)
    with pytest.raises(BadToken):
        logins.trade(late)


@pytest.mark.req("C4")
@pytest.mark.parametrize("guess", ["", "A" * 43, "ä", "\ud800", "x" * 1000])
def test_a_guess_is_no_code(logins: Logins, guess: str) -> None:
    code = logins.mint_code()
    for wrong in (guess, code[:-1], f"{code}A", code.swapcase()):
        with pytest.raises(BadToken) as refused:
            logins.trade(wrong)
        assert code not in str(refused.value)
    logins.trade(code)


def test_of_too_many_codes_the_oldest_ends(logins: Logins) -> None:
    first, *others = [logins.mint_code() for _ in range(limits.CODES_MAX + 1)]
    with pytest.raises(BadToken):
        logins.trade(first)
    for code in others:
        logins.trade(code)


@pytest.mark.req("C4")
def test_a_bearer_lives_while_it_is_used_and_some_hours_at_most(logins: Logins, clock: ManualClock) -> None:
    bearer = login(logins)
    for _ in range(limits.LIFE_MS // limits.IDLE_MS * 2 - 1):
        clock.advance(limits.IDLE_MS // 2)
        assert logins.use(bearer) is not None
    clock.advance(limits.IDLE_MS // 2)
    assert logins.use(bearer) is None, "however often it is used"


@pytest.mark.req("C4")
def test_a_bearer_that_nobody_uses_ends(logins: Logins, clock: ManualClock) -> None:
    bearer = login(logins)
    clock.advance(limits.IDLE_MS - 1)
    assert logins.identify(bearer) == NAME
    clock.advance(1)
    assert logins.identify(bearer) is None, "and to ask was no use of it"


def test_of_too_many_logins_the_one_used_longest_ago_ends(logins: Logins) -> None:
    first, second, *_ = [login(logins) for _ in range(limits.LOGINS_MAX)]
    logins.use(first)
    login(logins)
    assert logins.identify(first) == NAME
    assert logins.identify(second) is None


@pytest.mark.req("C4")
def test_all_are_ended_at_once_and_codes_with_them(logins: Logins) -> None:
    bearers, code = [login(logins), login(logins)], logins.mint_code()
    logins.end_all()
    assert [logins.identify(bearer) for bearer in bearers] == [None, None]
    with pytest.raises(BadToken):
        logins.trade(code)


def test_one_is_ended_by_itself(logins: Logins) -> None:
    mine, other = login(logins), login(logins)
    assert logins.end(mine)
    assert not logins.end(mine)
    assert (logins.identify(mine), logins.identify(other)) == (None, NAME)


@pytest.mark.req("C4")
async def test_who_waits_for_the_end_of_a_login_is_told(logins: Logins) -> None:
    bearer = login(logins)
    used = logins.use(bearer)
    assert used is not None
    waiting = asyncio.create_task(logins.until_over(used))
    await asyncio.sleep(0)
    assert not waiting.done()
    logins.end(bearer)
    async with asyncio.timeout(WITHIN_S):
        await waiting
