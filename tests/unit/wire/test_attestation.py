"""When a member's word for a session's key is good."""

import msgspec
import pytest

from claudemesh.wire.attestation import judge_attestation
from claudemesh.wire.frames import ATTESTATION_MAX_MS, CLOCK_SKEW_MAX_MS, Attestation

MEMBER, SESSION, OTHER = "a" * 64, "5" * 64, "6" * 64
NOW = 1_700_000_000_000
GOOD = Attestation(session_pubkey=SESSION, parent_member_pubkey=MEMBER, expires_at=NOW + 1, signature="good")


def judge(attestation: Attestation | None, member: str = MEMBER, session: str | None = SESSION) -> str | None:
    return judge_attestation(
        attestation, member, session, NOW, lambda key, _, signature: (key, signature) == (member, "good")
    )


@pytest.mark.req("P10")
def test_a_word_for_this_key_in_this_members_name_is_good_until_it_expires() -> None:
    longest = NOW + ATTESTATION_MAX_MS + CLOCK_SKEW_MAX_MS
    words = {at: judge(msgspec.structs.replace(GOOD, expires_at=at)) for at in (NOW, NOW + 1, longest, longest + 1)}
    assert words == {
        NOW: "attestation_expired",
        NOW + 1: None,
        longest: None,
        longest + 1: "attestation_expired",
    }


@pytest.mark.req("P10")
def test_a_word_for_another_key_or_of_another_member_or_unsigned_is_bad() -> None:
    assert judge(msgspec.structs.replace(GOOD, signature="bad")) == "bad_attestation"
    assert judge(GOOD, member=OTHER) == "bad_attestation"
    assert judge(GOOD, session=OTHER) == "bad_attestation"
    own = msgspec.structs.replace(GOOD, session_pubkey=MEMBER)
    assert judge(own, session=MEMBER) == "bad_attestation", "a member's key is no session's"


@pytest.mark.req("P10")
def test_where_no_session_speaks_there_is_nothing_to_vouch_for() -> None:
    assert judge(None, session=None) is None
    assert judge(None) == "bad_attestation"
    assert judge(GOOD, session=None) == "bad_attestation"
