"""One bug of each class, planted in a clean history: what was promised, and is not so any more.

`MUTATIONS` has for each invariant what breaks it. Where others see the same bug from their side, `ALSO` says so.
"""

from collections.abc import Callable

from tests.unit.pipeline.histories import NAMES, QUEUE, Row, Story
from tests.unit.pipeline.ledgers import LEASE_MS
from tests.unit.pipeline.mutations_of_writes import OF_WRITES

Mutation = Callable[[Story], None]


# --- looking for a place ---------------------------------------------------------------------------


def kept(story: Story, kind: str | None = None) -> list[Row]:
    """Return the messages that the broker has, oldest first."""
    found = [one for one in story.messages.values() if not one.get("is_gone")]
    return [one for one in found if kind in (None, one["kind"])]


def lines_of(story: Story, f: str, ev: str, **said: object) -> list[Row]:
    return [one for one in story.lines if (one["f"], one["ev"]) == (f, ev) and said.items() <= one.items()]


def rows_of(message: Row, table: list[Row]) -> list[Row]:
    return [row for row in table if row["history_id"] == message["history_id"]]


def remove(table: list[Row], row: Row) -> None:
    table[:] = [one for one in table if one is not row]


def straight(story: Story, name: str) -> list[Row]:
    """Return the rows of an inbox whose messages are kept and came at their first try."""
    events = story.broker["delivery_event"]
    bent = {one["history_id"] for one in events if one["what"] in ("returned", "dead")}
    gone = {one["history_id"] for one in story.messages.values() if one.get("is_gone")}
    return [row for row in story.inbox(name) if row["history_id"] not in bent | gone]


def append(story: Story, line: Row, **changed: object) -> None:
    """Log it again, at the end."""
    t = story.tick()
    story.lines.append({**line, "t": t, "asked": t, **changed})


# --- sends -----------------------------------------------------------------------------------------


def acknowledged_and_gone(story: Story) -> None:
    told = {line["id"] for line in lines_of(story, "send", "ok", who=story.uid("alice"))}
    waiting = [row for row in story.outbox("alice") if row["status"] == "pending"]
    if not any(row["client_message_id"] in told for row in waiting):
        story.call("alice", "send", "ok", id="late", key="bob", body="")
        waiting = [story.queue("alice", "bob", "late", "words")]
        told.add("late")
    remove(story.outbox("alice"), next(row for row in waiting if row["client_message_id"] in told))


def let_go_too_early(story: Story) -> None:
    row = story.queue("alice", "bob", "let-go", "words")
    history_id = len(story.messages) + 1
    row |= {"status": "done", "broker_message_id": f"{story.mesh}-none", "history_id": history_id}


def accepted_twice(story: Story) -> None:
    row = story.queue("alice", "bob", "twice", "words")
    story.log("alice", "send", "invoke", story.tick(), id="twice", key="bob", body="")
    first = story.accept("alice", row)
    again = story.accept("alice", dict(row))
    for message in (first, again):
        remove(story.broker["body"], rows_of(message, story.broker["body"])[0])


def delivered_twice(story: Story) -> None:
    row = straight(story, "bob")[-1]
    for one in (*story.inbox("bob"), *story.tables[f"{story.mesh}/inbox-bob"]["body"]):
        one["seq"] *= 2
    story.inbox("bob").append({**row, "seq": row["seq"] + 1})


def stored_from_nowhere(story: Story) -> None:
    story.accept("alice", story.queue("alice", "bob", "ghost", "words"))


def stored_without_an_outbox(story: Story) -> None:
    ids = [one["client_message_id"] for one in kept(story) if one["from"] == "alice"]
    remove(story.outbox("alice"), next(row for row in story.outbox("alice") if row["client_message_id"] == ids[0]))


def refused_and_stored(story: Story) -> None:
    story.call("alice", "send", "fail", id="refused", key="bob", body="")
    row = story.queue("alice", "bob", "refused", "words")
    remove(story.broker["body"], rows_of(story.accept("alice", row), story.broker["body"])[0])


def refused_and_queued(story: Story) -> None:
    story.call("alice", "send", "fail", id="refused", key="bob", body="")
    story.queue("alice", "bob", "refused", "words")


def words_changed_at_the_broker(story: Story) -> None:
    message = next(one for one in kept(story) if not one["client_message_id"].startswith("again"))
    rows_of(message, story.broker["body"])[0]["body"] = "other words"


def words_changed_on_the_way(story: Story) -> None:
    line = next(one for one in lines_of(story, "recv", "ok") if one["id"] and not one["id"].startswith("again"))
    line["body"] = "0" * 64


def another_request_accepted(story: Story) -> None:
    message = kept(story)[-1]
    ids = {name: message[name] for name in ("sender_id", "client_message_id", "broker_message_id")}
    dedupe = next(row for row in story.broker["client_message_dedupe"] if ids.items() <= row.items())
    dedupe["request_fingerprint"] = b"another"


def acknowledged_in_another_order(story: Story) -> None:
    for number in (1, 2):
        row = story.queue("alice", "bob", f"swapped-{number}", "words")
        remove(story.broker["body"], rows_of(story.accept("alice", row), story.broker["body"])[0])
    for number in (2, 1):
        story.call("alice", "send", "ok", id=f"swapped-{number}", key="bob", body="")


def an_outbox_that_overtakes(story: Story) -> None:
    done = [row for row in story.outbox("alice") if row["status"] == "done" and row["destination"] == QUEUE]
    done[0]["seq"], done[1]["seq"] = done[1]["seq"], done[0]["seq"]


def half_an_accept(story: Story) -> None:
    message = kept(story, "queue")[-1]
    remove(story.broker["queue_lease"], rows_of(message, story.broker["queue_lease"])[0])


def the_other_half(story: Story) -> None:
    at = {"mesh_id": 1, "history_id": len(story.messages) + 7}
    story.broker["topic_message"].append({**at, "topic_id": 1})


def an_id_without_its_message(story: Story) -> None:
    ids = {"sender_id": 1, "client_message_id": "alone", "broker_message_id": f"{story.mesh}-alone"}
    story.broker["client_message_dedupe"].append({"mesh_id": 1, **ids, "request_fingerprint": b""})


# --- deliveries ------------------------------------------------------------------------------------


def delivered_to_nobody(story: Story) -> None:
    remove(story.inbox("bob"), straight(story, "bob")[-1])


def received_from_nowhere(story: Story) -> None:
    row = story.inbox("bob")[-1]
    ghost = {"client_message_id": "ghost", "broker_message_id": f"{story.mesh}-ghost", "history_id": 1}
    story.inbox("bob").append({**row, **ghost, "seq": row["seq"] + 9})


def misdirected(story: Story) -> None:
    message = kept(story, "dm")[-1]
    other = next(name for name in NAMES if name not in (message["from"], message["to"]))
    ids = {name: message[name] for name in ("client_message_id", "broker_message_id", "history_id")}
    seq = max(row["seq"] for row in story.inbox(other)) + 1
    story.inbox(other).append({"seq": seq, "sender_id": story.uid(message["from"]), **ids, "topic": None})


def shown_to_another(story: Story) -> None:
    message = kept(story, "dm")[-1]
    other = next(name for name in NAMES if name not in (message["from"], message["to"]))
    story.call(other, "recv", "ok", key=message["broker_message_id"], id=message["client_message_id"])


def overtaken_on_the_way(story: Story) -> None:
    lanes: dict[tuple[str, str | None], list[Row]] = {}
    for row in straight(story, "bob"):
        lanes.setdefault((row["sender_id"], row["topic"]), []).append(row)
    first, second, *_ = next(lane for lane in lanes.values() if len(lane) > 1)
    names = ("client_message_id", "broker_message_id", "history_id")
    one, two = {name: first[name] for name in names}, {name: second[name] for name in names}
    first |= two
    second |= one
    story.tables[f"{story.mesh}/inbox-bob"]["body"].clear()


def shown_as_new_again(story: Story) -> None:
    marked = lines_of(story, "ack", "ok")[0]
    shown = next(line for line in lines_of(story, "recv", "ok", who=marked["who"]) if line["key"] == marked["key"])
    append(story, shown)


# --- turns -----------------------------------------------------------------------------------------


def last_claim(story: Story) -> Row:
    claims = [line for line in lines_of(story, "claim", "ok") if line.get("key")]
    return max(claims, key=lambda line: (line["version"], line["t"]))


def leased_to_two(story: Story) -> None:
    append(story, last_claim(story), who="somebody")


def leased_backwards(story: Story) -> None:
    append(story, last_claim(story), version=0)


def finished_by_a_zombie(story: Story) -> None:
    claim = last_claim(story)
    append(story, claim, f="done", version=claim["version"] - 1)


# Of a ledger the same, in what it recorded.


def held(story: Story) -> Row:
    """Return a step of the ledger that somebody holds for the second time, at the end of all that is recorded."""
    (step,) = story.ledger.post()
    story.ledger.claim(step, "ann")
    story.ledger.now_ms += LEASE_MS
    story.ledger.requeue(step)
    story.ledger.claim(step, "ben")
    return step


def held_by_two(story: Story) -> None:
    story.ledger.renew(held(story))["worker_id"] = "cat"


def finished_by_another(story: Story) -> None:
    story.ledger.complete(held(story))["worker_id"] = "cat"


def renewed_backwards(story: Story) -> None:
    step = held(story)
    story.ledger.renew(step)
    story.ledger.renew({**step, "lease_owner": "ann", "fencing_token": 1})


def chained_in_another_order(story: Story) -> None:
    step = held(story)
    story.ledger.renew(step)
    links = story.ledger["chain"][-2:]
    links[0]["seq"], links[1]["seq"] = links[1]["seq"], links[0]["seq"]


def a_step_that_forgot_its_token(story: Story) -> None:
    held(story).update(fencing_token=0, lease_owner=None, status="PENDING")


def committed_for_one_who_was_requeued(story: Story) -> None:
    step = held(story)
    step |= {"fencing_token": 1, "lease_owner": "ann"}
    story.ledger.complete(step)


def committed_under_an_old_token(story: Story) -> None:
    step = held(story)
    story.ledger["requeues"].pop()
    story.ledger["chain"].pop()
    step["status"] = "COMMITTED"
    story.ledger.receipt(step, "ann", 1)


def committed_too_late(story: Story) -> None:
    step = held(story)
    story.ledger.now_ms += LEASE_MS
    story.ledger.complete(step)


def committed_by_nobody(story: Story) -> None:
    held(story)["status"] = "COMMITTED"


def a_receipt_that_commits_nothing(story: Story) -> None:
    story.ledger.complete(step := held(story))
    step["status"] = "LEASED"


def a_receipt_for_no_step(story: Story) -> None:
    step = held(story)
    story.ledger.complete(step)
    remove(story.ledger["steps"], step)
    story.ledger["requeues"].pop()


def committed_twice(story: Story) -> None:
    step = held(story)
    story.ledger.complete(step)
    story.ledger.receipt(step, "ben", 2)


def replaced_twice(story: Story) -> None:
    append(story, lines_of(story, "swap", "ok")[-1], version=1000)


def replaced_blindly(story: Story) -> None:
    append(story, lines_of(story, "swap", "ok")[-1], id="1", version=1000)


def told_twice_of_a_departure(story: Story) -> None:
    append(story, lines_of(story, "left", "ok")[-1])


def told_twice_of_an_arrival(story: Story) -> None:
    line = lines_of(story, "joined", "ok")[-1]
    for _ in range(2):
        append(story, line)


def left_without_coming(story: Story) -> None:
    append(story, lines_of(story, "left", "ok")[-1], id="never")


def resumed_twice(story: Story) -> None:
    append(story, lines_of(story, "resume", "ok")[-1], who="somebody")


# The same in the journal of leases.


def announced_twice(story: Story) -> None:
    story.lease("alice", "late", "lease-1", "joined")
    story.lease("alice", "late", "lease-2", "joined")


def gone_twice(story: Story) -> None:
    story.lease("alice", "late", "lease-1", "joined")
    story.lease("alice", "late", "lease-2", "begun")
    for lease in ("lease-1", "lease-2"):
        story.lease("alice", "late", lease, "left")


def gone_without_coming(story: Story) -> None:
    story.lease("alice", "late", "lease-1", "left")


def gone_by_a_lease_that_never_was(story: Story) -> None:
    story.lease("alice", "late", "lease-1", "joined")
    story.lease("alice", "late", "lease-2", "left")


def offline_before_it_began(story: Story) -> None:
    story.lease("alice", "late", "lease-1", "offline")


def back_without_having_been_away(story: Story) -> None:
    story.lease("alice", "late", "lease-1", "joined", "offline", "online", "online")


def a_number_that_nobody_has(story: Story) -> None:
    story.lease("alice", "late", "lease-1", "joined", "left")
    story.broker["presence_event"][-1]["seq"] += 1


def a_number_that_two_have(story: Story) -> None:
    story.lease("alice", "late", "lease-1", "joined", "left")
    story.broker["presence_event"][-1]["seq"] -= 1


def offline_after_it_left(story: Story) -> None:
    story.lease("alice", "late", "lease-1", "joined", "left", "offline")


def carried_on_after_it_ended(story: Story) -> None:
    story.lease("alice", "late", "lease-1", "joined")
    story.lease("alice", "late", "lease-2", "begun", "ended", "swapped")


MUTATIONS: dict[str, tuple[Mutation, ...]] = {
    "lost_acknowledged": (acknowledged_and_gone,),
    "done_not_stored": (let_go_too_early,),
    "two_rows_one_id": (accepted_twice, delivered_twice),
    "phantom_row": (stored_from_nowhere,),
    "stored_not_sent": (stored_without_an_outbox,),
    "refused_but_stored": (refused_and_stored, refused_and_queued),
    "body_changed": (words_changed_at_the_broker, words_changed_on_the_way, another_request_accepted),
    "order_of_acks": (acknowledged_in_another_order, an_outbox_that_overtakes),
    "torn_transaction": (half_an_accept, the_other_half, an_id_without_its_message),
    "never_delivered": (delivered_to_nobody,),
    "received_not_stored": (received_from_nowhere,),
    "wrong_recipient": (misdirected, shown_to_another),
    "order_per_pair": (overtaken_on_the_way,),
    "redelivered_after_ack": (shown_as_new_again,),
    "double_claim": (leased_to_two, held_by_two, finished_by_another),
    "token_went_back": (
        leased_backwards,
        renewed_backwards,
        chained_in_another_order,
        a_step_that_forgot_its_token,
    ),
    "zombie_done": (
        finished_by_a_zombie,
        committed_for_one_who_was_requeued,
        committed_under_an_old_token,
        committed_too_late,
    ),
    "torn_commit": (
        committed_by_nobody,
        a_receipt_that_commits_nothing,
        a_receipt_for_no_step,
        committed_twice,
    ),
    "lost_update": (replaced_twice, *OF_WRITES["lost_update"]),
    "stale_overwrite": (replaced_blindly, *OF_WRITES["stale_overwrite"]),
    "presence_twice": (told_twice_of_a_departure, told_twice_of_an_arrival, announced_twice, gone_twice),
    "left_before_joined": (
        left_without_coming,
        gone_without_coming,
        gone_by_a_lease_that_never_was,
        offline_before_it_began,
    ),
    "presence_gap": (a_number_that_nobody_has, a_number_that_two_have),
    "lease_after_end": (offline_after_it_left, carried_on_after_it_ended),
    "resume_replayed": (resumed_twice, back_without_having_been_away),
    **{name: OF_WRITES[name] for name in ("edge_append_lost", "edge_append_doubled", "edge_order")},
}

# Whoever replaces what was replaced before also writes over it.
ALSO: dict[Mutation, set[str]] = {replaced_twice: {"stale_overwrite"}}

CASES = [(name, mutation) for name, mutations in MUTATIONS.items() for mutation in mutations]
