"""Who was there, for how long, and how often they came back: by the journal of leases alone."""

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from claudemesh.kernel.clock import DAY_MS
from claudemesh.pipeline.jobs import presence
from claudemesh.pipeline.jobs.params import Params
from tests.spark.rows import ALICE, BOB, CAROL, HOUR_MS, NOW, Rows, frames, lease, together, town

MINUTE_MS = 60_000
AT_THE_CUT = Params(now_ms=NOW + 9 * DAY_MS, cut_ms=NOW + 2 * DAY_MS)


def told(  # noqa: PLR0913 - what a journal has
    rows: Rows, uid: str, story: str, member: int = ALICE, *, session: str = "", at: int = NOW
) -> None:
    """Append what happened to a lease, each with its minute: `joined 0, offline 5 closed`."""
    for part in story.split(", "):
        what, minute, *because = part.split()
        moment = at + int(minute) * MINUTE_MS
        lease(rows, what, uid, member, at=moment, session=session, because=because[0] if because else None)


def shuffled(spark: SparkSession, *towns: Rows) -> Any:  # noqa: ANN401 - frames by name
    rows = together(*towns)
    rows["presence_event"].reverse()  # whatever order the files have
    return frames(spark, rows)


def by_member(frame: DataFrame) -> dict[tuple[str, int], dict[str, Any]]:
    return {(row.name, (row.began_at - NOW) // MINUTE_MS): row.asDict() for row in frame.collect()}


@pytest.mark.req("S2")
def test_a_session_lasts_from_joined_to_left_with_all_its_flaps_and_graces(spark: SparkSession) -> None:
    rows = town()
    told(rows, "a1", "joined 0, offline 10 closed, online 11, swapped 20, offline 30 stale, left 35 expired")
    told(rows, "a2", "joined 40, left 41 goodbye")
    told(rows, "b1", "joined 0", BOB, session="key")
    found = by_member(presence.sessions(shuffled(spark, rows), AT_THE_CUT))
    whole = found.pop(("alice", 0))
    assert whole == {
        "mesh": "mesh-1",
        "day": "2026-01-01",
        "member": "alice-1",
        "name": "alice",
        "session": "",
        "began_at": NOW,
        "is_begin_known": True,
        "ended_at": NOW + 35 * MINUTE_MS,
        "because": "expired",
        "took_ms": 35 * MINUTE_MS,
        "leases": 1,
        "flaps": 2,
        "graces": 2,
        "returns": 1,
        "grace_ms": 6 * MINUTE_MS,
        "longest_grace_ms": 5 * MINUTE_MS,
    }
    again = found[("alice", 40)]
    assert (again["because"], again["took_ms"], again["flaps"], again["grace_ms"]) == ("goodbye", MINUTE_MS, 0, 0)
    stands = found[("bob", 0)]
    assert (stands["session"], stands["ended_at"], stands["because"]) == ("key", None, None)
    assert stands["took_ms"] == 2 * DAY_MS, "up to the cut, and not up to now"
    reasons = presence.endings(shuffled(spark, rows), AT_THE_CUT).collect()
    assert {(one.mesh, one.because, one.sessions) for one in reasons} == {
        ("mesh-1", "expired", 1),
        ("mesh-1", "goodbye", 1),
    }


@pytest.mark.req("S2")
def test_leases_of_one_key_are_one_session_and_each_has_its_own_grace(spark: SparkSession) -> None:
    rows = town()
    told(rows, "one", "joined 0, offline 10")
    told(rows, "two", "begun 12")
    told(rows, "one", "ended 15 superseded")
    told(rows, "two", "offline 20, online 21, left 30 goodbye")
    told(rows, "grace", "joined 0, offline 5", BOB)
    found = by_member(presence.sessions(shuffled(spark, rows), AT_THE_CUT))
    both = found[("alice", 0)]
    assert (both["leases"], both["took_ms"], both["flaps"]) == (2, 30 * MINUTE_MS, 1)
    assert (both["graces"], both["returns"], both["grace_ms"]) == (2, 1, 6 * MINUTE_MS)
    waits = found[("bob", 0)]
    assert (waits["graces"], waits["returns"]) == (1, 0)
    assert waits["grace_ms"] == waits["longest_grace_ms"] == 2 * DAY_MS - 5 * MINUTE_MS


@pytest.mark.req("S2")
def test_a_session_whose_beginning_was_swept_counts_from_the_first_that_is_known_of_it(spark: SparkSession) -> None:
    rows = town()
    told(rows, "old", "offline 5, left 6 expired")
    told(rows, "new", "joined 10, left 9 goodbye")  # by the clock of another broker
    found = by_member(presence.sessions(shuffled(spark, rows), AT_THE_CUT))
    assert {at: (one["is_begin_known"], one["took_ms"]) for (_, at), one in found.items()} == {
        5: (False, MINUTE_MS),
        10: (True, 0),
    }
    (day,) = presence.days(shuffled(spark, rows), AT_THE_CUT).collect()
    assert (day.sessions, day.begun, day.ended, day.peak) == (2, 1, 2, 1)


@pytest.mark.req("S2")
def test_a_day_has_who_was_there_on_it_how_many_at_once_and_how_often_they_flapped(spark: SparkSession) -> None:
    rows = town()
    evening = NOW + 22 * HOUR_MS
    told(rows, "a", "joined 0, swapped 1, offline 2, online 3", at=evening)
    told(rows, "b", "joined 0, left 60 goodbye", BOB, at=evening)
    told(rows, "c", "joined 60", CAROL, at=evening)  # in the moment in which bob left
    told(rows, "a", "offline 180, online 190", at=evening)
    told(rows, "a", "offline 200, left 260 expired", at=evening)
    told(rows, "c", "offline 300", CAROL, at=evening)  # it is not over, and counts nowhere yet
    other = town(2)
    told(other, "z", "joined 0, left 0 goodbye")
    found = {(one.mesh, one.day): one for one in presence.days(shuffled(spark, rows, other), AT_THE_CUT).collect()}
    assert sorted(found) == [
        ("mesh-1", "2026-01-01"),
        ("mesh-1", "2026-01-02"),
        ("mesh-1", "2026-01-03"),
        ("mesh-2", "2026-01-01"),
    ]
    first, second, third, brief = (found[key] for key in sorted(found))
    assert (first.sessions, first.begun, first.ended, first.peak) == (3, 3, 1, 2)
    assert (first.hours, first.flaps, first.flaps_per_hour) == (2 + 1 + 1, 2, 0.5)
    assert (first.graces, first.returns, first.returned_share, first.max_ms) == (1, 1, 1.0, MINUTE_MS)
    assert (second.sessions, second.begun, second.ended, second.peak) == (2, 0, 1, 2)
    assert second.hours == pytest.approx(24 + 140 / 60)
    assert (second.flaps, second.graces, second.returns, second.returned_share) == (1, 2, 1, 0.5)
    assert (second.p50_ms, second.max_ms) == (35 * MINUTE_MS, 60 * MINUTE_MS)
    assert (third.sessions, third.peak, third.hours, third.flaps) == (1, 1, 0, 0)
    assert (third.flaps_per_hour, third.returned_share, third.p50_ms) == (None, None, None)
    assert (brief.sessions, brief.peak, brief.hours) == (1, 1, 0), "however short it was"


@pytest.mark.req("S2")
def test_since_leaves_out_who_had_left_by_then_and_the_days_before(spark: SparkSession) -> None:
    rows = town()
    told(rows, "a", "joined 0, left 10 goodbye")
    told(rows, "b", "joined 0", BOB)
    since = Params(AT_THE_CUT.now_ms, since_ms=NOW + DAY_MS, cut_ms=AT_THE_CUT.cut_ms)
    tables = shuffled(spark, rows)
    assert [one.name for one in presence.sessions(tables, since).collect()] == ["bob"]
    found = {one.day: one.sessions for one in presence.days(tables, since).collect()}
    assert found == {"2026-01-02": 1, "2026-01-03": 1}
    assert presence.endings(tables, since).collect() == []
