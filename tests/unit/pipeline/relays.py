"""Made-up rows of a hub and of two relays before it, all of it as promised.

The same seed makes the same. Writes go through a relay while the hub is away, and are replayed in their lanes;
others go to the hub at once. There are conflicts that an operator resolves, writes that found their values there,
those that a later one made needless, dead and cancelled ones, marks that change nothing, rows that are deleted, and
envelopes that were emptied.
"""

import random
from typing import Any

from claudemesh.pipeline.catalogue import HUB, RELAY
from claudemesh.pipeline.shapes import Kind

Row = dict[str, Any]
START_MS = 1_767_225_600_000
STATUSES = ("todo", "doing", "done")


def empty(kind: Kind) -> dict[str, list[Row]]:
    return {table.name: [] for table in kind.tables if not table.is_body and table.open_of is None}


class Hub:
    def __init__(self, name: str) -> None:
        self.name = name
        self.now_ms = START_MS
        self.tables = empty(HUB)
        self.tables["hub_state"].append({"name": "store_id", "value": name})
        self.standing: dict[str, Row] = {}  # the last line of each row that stands

    @property
    def lines(self) -> list[Row]:
        return self.tables["hub_write"]

    def write(self, place: str, key: str | None, status: str | None = None, **said: Any) -> Row:  # noqa: ANN401 - columns
        """Append a line, of a row that stands or of a new one."""
        kind, _, entity_id = place.partition("/")
        before = self.standing.get(place)
        self.now_ms += 7
        line = {
            "seq": len(self.lines) + 1,
            "at": self.now_ms,
            "kind": kind,
            "entity_id": entity_id,
            "base_revision": before["revision"] if before else 0,
            "revision": before["revision"] + 1 if before else 1,
            "method": "PATCH" if before else "POST",
            "path": f"/{place}" if before else f"/{kind}/",
            "idempotency_key": key,
            "source_host": "laptop",
            "source_agent": "codex",
            "expected_revisions": None,
            "expected_updated_at": None,
            "expected_status": None,
            "status": status or (before["status"] if before else None),
            "fields_bytes": 20,
            "deleted": 0,
            **said,
        }
        self.lines.append(line)
        if line["deleted"]:
            del self.standing[place]
        else:
            self.standing[place] = line
        return line

    def replace(self, place: str, envelope: Row) -> Row | None:
        """Do what an envelope asks for, if the row is as it expects; return the line."""
        stands = self.standing[place]
        if_match = envelope["if_match"]
        if if_match is not None and if_match != f'"{stands["revision"]}"':
            return None
        if envelope["expected_status"] not in (None, stands["status"]):
            return None
        expected = {"expected_revisions": f"[{stands['revision']}]" if if_match else None}
        expected["expected_status"] = envelope["expected_status"]
        return self.write(place, envelope["key"], envelope["wants"], **expected)


class Relay:
    def __init__(self, name: str, hub: Hub) -> None:
        self.name = name
        self.hub = hub
        self.tables = empty(RELAY)
        self.numbers = 0

    @property
    def envelopes(self) -> list[Row]:
        return self.tables["outbox"]

    def key(self) -> str:
        self.numbers += 1
        return f"{self.name}-key-{self.numbers}"

    # --- what waits ---

    def queue(self, destination: str, route_class: str, **said: Any) -> Row:  # noqa: ANN401 - columns
        seq = len(self.envelopes) + 1
        key = self.key()
        method = "POST" if route_class == "append" else "PATCH"
        envelope = dict.fromkeys(RELAY.table("outbox").columns) | {
            "seq": seq,
            "id": f"{self.name}-{seq}",
            "client_message_id": key,
            "key": key,
            "request_fingerprint": b"",
            "method": method,
            "path": f"/{destination}",
            "destination": destination,
            "route_class": route_class,
            "is_status_write": int(route_class == "replace"),
            "source_agent": "codex",
            "source_host": "laptop",
            "body_bytes": 20,
            "enqueued_at": self.hub.now_ms,
            "attempts": 0,
            "status": "pending",
            **said,
        }
        self.envelopes.append(envelope)
        self._note(envelope, None)
        return envelope

    def settle(self, envelope: Row, status: str, **said: Any) -> None:  # noqa: ANN401 - columns
        was = envelope["status"]
        envelope |= {"status": status, **said}
        if status == "done":
            envelope |= {"delivered_at": self.hub.now_ms, "attempts": envelope["attempts"] + 1}
        if status == "aborted":
            envelope["aborted_at"] = self.hub.now_ms
        self._note(envelope, was)

    def _note(self, envelope: Row, was: str | None) -> None:
        events = self.tables["envelope_event"]
        event = dict.fromkeys(RELAY.table("envelope_event").columns)
        event |= {"seq": len(events) + 1, "envelope": envelope["seq"], "at": self.hub.now_ms, "was": was}
        events.append({**event, "became": envelope["status"]})

    def append(self, status: str = "pending") -> Row:
        envelope = self.queue(f"alone/{self.name}-{len(self.envelopes) + 1}", "append", path="/progress/")
        if status == "done":
            self.make(envelope)
        elif status != "pending":
            self.settle(envelope, status, attempts=1, last_error="status_422")
        return envelope

    def make(self, envelope: Row) -> Row:
        line = self.hub.write(f"progress/{envelope['id']}", envelope["key"])
        self.settle(envelope, "done", answer_status=201)
        return line

    def change(self, place: str, status: str, **expected: str) -> Row:
        """Queue a status write, which makes one needless that was never tried."""
        waiting = [one for one in self.envelopes if one["destination"] == place and one["status"] == "pending"]
        said = {name: waiting[-1][name] for name in ("if_match", "expected_status")} if waiting else expected
        envelope = self.queue(place, "replace", wants=status, **said)
        if waiting:
            self.settle(waiting[-1], "aborted", aborted_by="coalesced", superseded_by=envelope["id"])
        return envelope

    def replay(self, envelope: Row) -> None:
        place = envelope["destination"]
        if place not in self.hub.standing:
            self.settle(envelope, "dead", last_error="not_found", answer_status=404)
        elif self.hub.replace(place, envelope) is not None:
            self.settle(envelope, "done", answer_status=200)
        elif self.hub.standing[place]["status"] == envelope["wants"]:
            self.settle(envelope, "done", answer_status=200, last_error="already_there")
        else:
            self.settle(envelope, "conflict", last_error="revision_conflict")

    def keep_mine(self, envelope: Row) -> None:
        """Resolve a conflict: under a fresh key, over what stands there now."""
        stands = self.hub.standing[envelope["destination"]]
        if_match = f'"{stands["revision"]}"' if envelope["if_match"] else None
        status = stands["status"] if envelope["expected_status"] else None
        self.settle(envelope, "pending", key=self.key(), if_match=if_match, expected_status=status)
        self.replay(envelope)


def wait(hub: Hub, relay: Relay, dice: random.Random) -> None:
    """Queue some writes while the hub is away, where somebody else writes meanwhile."""
    for _ in range(dice.randint(1, 3)):
        relay.append(dice.choice(["done", "done", "dead", "pending"]))
    for _ in range(dice.randint(1, 3)):
        place = f"tasks/t{dice.randint(0, 2)}"
        stands = hub.standing[place]
        if dice.random() < 0.5:
            relay.change(place, dice.choice(STATUSES), if_match=f'"{stands["revision"]}"')
        else:
            relay.change(place, dice.choice(STATUSES), expected_status=stands["status"])
    if dice.random() < 0.3:  # and expects nothing
        hub.write(f"tasks/t{dice.randint(0, 2)}", dice.choice([None, f"{hub.name}-{hub.now_ms}"]), "doing")
    if dice.random() < 0.3:
        line = hub.standing["tasks/t0"]
        hub.write("tasks/t0", None, "done", expected_updated_at=line["at"])


def recover(hub: Hub, relay: Relay, dice: random.Random) -> None:
    """Replay what waits, and decide what is in conflict; then mark as read what may be read already."""
    for envelope in [one for one in relay.envelopes if one["status"] == "pending" and "wants" in one]:
        relay.replay(envelope)
    for envelope in [one for one in relay.envelopes if one["status"] == "conflict"]:
        if dice.random() < 0.7:
            relay.keep_mine(envelope)
        else:
            relay.settle(envelope, "aborted", aborted_by="ann: kept theirs")
    read = relay.queue("messages/m1", "append", method="PATCH", path="/messages/m1/read")
    if hub.standing["messages/m1"]["revision"] == 1:
        hub.write("messages/m1", read["key"])
    relay.settle(read, "done", answer_status=200)


def clean_relays(seed: int, name: str, *, acts: int = 20) -> tuple[Hub, list[Relay]]:
    dice = random.Random(seed)  # noqa: S311
    hub = Hub(name)
    relays = [Relay(f"{name}-relay-{number}", hub) for number in (1, 2)]
    for number in range(3):
        hub.write(f"tasks/t{number}", None, "todo")
    hub.write("messages/m1", None)
    for act in range(acts):
        relay = dice.choice(relays)
        outage = {"id": f"{name}-{act}", "began_at": hub.now_ms, "first_seq": len(relay.envelopes) + 1}
        wait(hub, relay, dice)
        outage["online_at"] = hub.now_ms
        recover(hub, relay, dice)
        relay.tables["outage"].append({**outage, "recovered_at": hub.now_ms})
        hub.now_ms += 1_000
    hub.write("tasks/t3", f"{name}-new", "todo")
    hub.write("tasks/t3", None, deleted=1)
    relays[0].replay(relays[0].change("tasks/t3", "done", expected_status="todo"))
    relays[0].envelopes[0] |= {"key": None, "if_match": None, "expected_status": None}  # emptied
    return hub, relays
