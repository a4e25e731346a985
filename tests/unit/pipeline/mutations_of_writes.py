"""As `mutations`, in what a hub and its relays hold."""

from collections.abc import Callable

from tests.unit.pipeline.histories import Row, Story

PLACE = "tasks/t0"


def replaced(story: Story, **expected: str) -> Row:
    """Return an envelope that the hub has applied, whatever it expected."""
    envelope = story.relays[0].queue(PLACE, "replace", **expected)
    story.hub.write(PLACE, envelope["key"], "done")
    story.relays[0].settle(envelope, "done", answer_status=200)
    return envelope


# --- lost updates ----------------------------------------------------------------------------------


def two_from_one_base(story: Story) -> None:
    line = story.hub.write(PLACE, None, "done")
    story.hub.write(PLACE, None, "todo", base_revision=line["base_revision"], revision=line["revision"])


def a_line_that_is_missing(story: Story) -> None:
    for status in ("done", "todo"):
        story.hub.write(PLACE, None, status)
    del story.hub.lines[-2]


def written_after_it_was_deleted(story: Story) -> None:
    last = [line for line in story.hub.lines if line["deleted"]][-1]
    place = f"{last['kind']}/{last['entity_id']}"
    story.hub.write(place, None, base_revision=last["revision"], revision=last["revision"] + 1)


def acknowledged_and_not_replaced(story: Story) -> None:
    envelope = story.relays[0].queue(PLACE, "replace", if_match='"1"')
    story.relays[0].settle(envelope, "done", answer_status=200)


# --- stale overwrites ------------------------------------------------------------------------------


def over_another_revision(story: Story) -> None:
    story.hub.write(PLACE, None, expected_revisions=f"[{story.hub.standing[PLACE]['revision'] - 1}]")


def over_no_revision_of_ours(story: Story) -> None:
    story.hub.write(PLACE, None, expected_revisions="[]")


def over_a_later_change(story: Story) -> None:
    story.hub.write(PLACE, None, expected_updated_at=story.hub.standing[PLACE]["at"] - 1)


def over_another_status(story: Story) -> None:
    story.hub.write(PLACE, None, expected_status="never")


def the_revision_was_dropped_on_the_way(story: Story) -> None:
    replaced(story, if_match='"1"')


def the_time_was_dropped_on_the_way(story: Story) -> None:
    replaced(story, expected_updated_at="2026-01-01T00:00:00.000Z")


def the_status_was_dropped_on_the_way(story: Story) -> None:
    replaced(story, expected_status="todo")


# --- through a relay -------------------------------------------------------------------------------


def an_append_that_nobody_has(story: Story) -> None:
    story.relays[0].settle(story.relays[0].append(), "done", answer_status=201)


def an_append_that_was_acknowledged_and_waits_again(story: Story) -> None:
    envelope = story.relays[0].append()
    story.relays[0].settle(envelope, "done", answer_status=201)
    envelope["status"] = "pending"


def appended_twice(story: Story) -> None:
    envelope = story.relays[0].append("done")
    story.hub.write("progress/again", envelope["key"])


def appended_twice_and_not_acknowledged(story: Story) -> None:
    envelope = story.relays[0].append()
    for row in ("progress/once", "progress/again"):
        story.hub.write(row, envelope["key"])


def overtaken_in_its_lane(story: Story) -> None:
    relay = story.relays[0]
    first, second = (relay.queue(PLACE, "replace") for _ in range(2))
    for envelope in (second, first):
        story.hub.write(PLACE, envelope["key"], "done")
        relay.settle(envelope, "done", answer_status=200)


OF_WRITES: dict[str, tuple[Callable[[Story], None], ...]] = {
    "lost_update": (
        two_from_one_base,
        a_line_that_is_missing,
        written_after_it_was_deleted,
        acknowledged_and_not_replaced,
    ),
    "stale_overwrite": (
        over_another_revision,
        over_no_revision_of_ours,
        over_a_later_change,
        over_another_status,
        the_revision_was_dropped_on_the_way,
        the_time_was_dropped_on_the_way,
        the_status_was_dropped_on_the_way,
    ),
    "edge_append_lost": (an_append_that_nobody_has, an_append_that_was_acknowledged_and_waits_again),
    "edge_append_doubled": (appended_twice, appended_twice_and_not_acknowledged),
    "edge_order": (overtaken_in_its_lane,),
}
