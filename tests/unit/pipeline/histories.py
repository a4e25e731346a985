"""Made-up histories of a mesh: what its clients logged and what its stores hold, all of it as promised.

The same seed makes the same history. There are retries, answers that got lost, refusals, topics, queues, rows that
wait, that were given up or sent again by an operator, deliveries that were given back, and messages that retention
deleted, one of whose ids was forgotten and used anew; leases, the first of which a store forgets; and a ledger, a
hub and its relays beside. `mutations` breaks the promises, one by one.
"""

import random
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from claudemesh.pipeline.catalogue import kind_of
from claudemesh.pipeline.checks.invariants import INPUTS
from claudemesh.pipeline.history import History, Line, to_row
from tests.unit.pipeline.ledgers import clean_ledger
from tests.unit.pipeline.relays import clean_relays

Row = dict[str, Any]
NAMES = ("alice", "bob", "carol")
TOPIC = "topic:1"
QUEUE = "queue:1"
OF_MESSAGES = [
    one.table for one in INPUTS if one.table != "tombstone" and {"mesh_id", "history_id"} <= {*one.columns}
]


class Story:
    def __init__(self, seed: int, mesh: str = "mesh", *, is_lake: bool = True) -> None:
        self.dice = random.Random(seed)  # noqa: S311
        self.mesh = mesh
        self.is_lake = is_lake  # a lake keeps what retention deleted, a store does not
        self.lines: list[Row] = []
        self.tables: dict[str, dict[str, list[Row]]] = {}
        self.now = 0.0
        self.messages: dict[int, Row] = {}  # by history id
        for name in ("broker", *(f"{kind}-{name}" for kind in ("outbox", "inbox") for name in NAMES)):
            kind, _, whose = name.partition("-")
            of_kind: dict[str, list[Row]] = {one.table: [] for one in INPUTS if one.kind.name == kind}
            if whose:
                of_kind["owner"].append({"mesh": mesh, "owner": self.uid(whose)})
            self.tables[f"{mesh}/{name}"] = of_kind
        self.ledger = clean_ledger(seed, mesh, version=2 if is_lake else 1)
        self.tables[f"{mesh}/ledger"] = self.ledger.tables
        self.hub, self.relays = clean_relays(seed, mesh)
        self.tables[f"{mesh}/hub"] = self.hub.tables
        self.tables |= {f"{mesh}/{relay.name}": relay.tables for relay in self.relays}
        self.broker = self.tables[f"{mesh}/broker"]
        self.broker["mesh"].append({"id": 1, "uid": mesh})
        self.broker["member"] += [{"id": self.number(name), "uid": self.uid(name)} for name in NAMES]

    # --- who and what ---

    def uid(self, name: str) -> str:
        return f"{self.mesh}-{name}"

    def number(self, name: str) -> int:
        return NAMES.index(name) + 1

    def outbox(self, name: str) -> list[Row]:
        return self.tables[f"{self.mesh}/outbox-{name}"]["outbox"]

    def inbox(self, name: str) -> list[Row]:
        return self.tables[f"{self.mesh}/inbox-{name}"]["inbox"]

    # --- the log ---

    def tick(self) -> float:
        self.now = round(self.now + self.dice.randint(1, 20) / 1000, 3)
        return self.now

    def call(self, who: str, f: str, ev: str, answers: Iterable[Row] | None = None, **said: object) -> None:
        """Log a call, and its answer or answers."""
        asked = self.tick()
        self.log(who, f, "invoke", asked, **said)
        for answer in [said] if answers is None else answers:
            self.log(who, f, ev, asked, **answer)

    def log(self, who: str, f: str, ev: str, asked: float, **said: object) -> None:
        t = asked if ev == "invoke" else self.tick()
        line = {"t": t, "asked": asked, "at": int(1000 * t), "process": f"of-{who}", "ev": ev, "f": f}
        line["boot"] = "one machine"
        self.lines.append({**line, "mesh": self.mesh, "who": self.uid(who), **said})

    # --- sending ---

    def send(self, who: str, to: str, id: str) -> None:  # noqa: A002
        words = f"words of {id} by {who}"
        said = {"id": id, "key": to, "body": sha256(words.encode()).hexdigest()}
        dice = self.dice.random()
        if dice < 0.1:
            self.call(who, "send", "fail", **said)
            return
        if dice < 0.2:
            self.call(who, "send", "unknown", **said)
            if dice < 0.15:
                return  # and nothing came of it
        if dice < 0.25:
            self.log(who, "send", "invoke", self.tick(), **said)  # it was killed before its answer
        else:
            self.call(who, "send", "ok", **said)
        if dice > 0.9:
            self.call(who, "send", "ok", **said)  # again: it counts once
        self.queue(who, to, id, words)

    def queue(self, who: str, to: str, id: str, words: str) -> Row:  # noqa: A002
        rows = self.outbox(who)
        row = {
            "seq": (seq := max((row["seq"] for row in rows), default=0) + 1),
            "id": f"{self.uid(who)}-row-{seq}",
            "client_message_id": id,
            "request_fingerprint": sha256(f"{to} {words}".encode()).digest(),
            "destination": to,
            "status": "pending",
            "broker_message_id": None,
            "history_id": None,
            "superseded_by": None,
            "words": words,
        }
        rows.append(row)
        return row

    def drain(self, who: str) -> None:
        """Take what waits to the broker, each destination's in its order; some of it is given up."""
        held: set[str] = set()
        for row in [row for row in self.outbox(who) if row["status"] == "pending"]:
            dice = self.dice.random()
            if row["destination"] in held or dice < 0.1:
                held.add(row["destination"])
            elif dice < 0.15:
                row["status"] = "dead"
                if dice < 0.13:
                    again = self.queue(who, row["destination"], f"again-{row['client_message_id']}", row["words"])
                    row |= {"status": "aborted", "superseded_by": again["id"]}
            else:
                self.accept(who, row)

    def accept(self, who: str, row: Row) -> Row:
        history_id = len(self.messages) + 1
        broker_id = f"{self.mesh}-{history_id:06}"
        row |= {"status": "done", "broker_message_id": broker_id, "history_id": history_id}
        at = {"mesh_id": 1, "history_id": history_id}
        ids = {"sender_id": self.number(who), "client_message_id": row["client_message_id"]}
        ids["broker_message_id"] = broker_id
        to = row["destination"]
        kind = "topic" if to == TOPIC else "queue" if to == QUEUE else "dm"
        recipients = [name for name in NAMES if name != who] if kind == "topic" else [to] if kind == "dm" else []
        self.broker["client_message_dedupe"].append(
            {"mesh_id": 1, **ids, "request_fingerprint": row["request_fingerprint"]}
        )
        self.broker["message_history"].append({**at, **ids, "kind": kind})
        if kind == "topic":
            self.broker["topic_message"].append({**at, "topic_id": 1})
            self.broker["mention_index"].append(at)
        else:
            recipient_id, queue_id = (self.number(to), None) if kind == "dm" else (None, 1)
            self.broker["message_queue"].append({**at, "recipient_id": recipient_id, "queue_id": queue_id})
        if kind == "queue":
            self.broker["queue_lease"].append(at)
        self.broker["delivery_queue"] += [
            {**at, "recipient_id": number}
            for number in ([0] if kind == "queue" else [self.number(name) for name in recipients])
        ]
        self.broker["body"].append({**at, "encoding": "plain", "body": row["words"]})
        message = {
            **at,
            **ids,
            "kind": kind,
            "from": who,
            "to": to,
            "words": row["words"],
            "waits": set(recipients),
        }
        self.messages[history_id] = message
        return message

    # --- receiving ---

    def deliver(self, name: str) -> None:
        """Bring what waits for a member, in its order; some of it is refused, some given back and brought later."""
        late: list[Row] = []
        for message in [one for one in self.messages.values() if name in one["waits"]]:
            dice = self.dice.random()
            if dice < 0.1:
                break  # the rest comes another time
            message["waits"].discard(name)
            if dice < 0.15:
                self.note(message, name, "dead")
            elif dice < 0.2:
                self.note(message, name, "delivered")
                self.note(message, name, "returned")
                late.append(message)
            else:
                self.receive(message, name)
        for message in late:
            self.receive(message, name)

    def receive(self, message: Row, name: str) -> None:
        seq = max((row["seq"] for row in self.inbox(name)), default=0) + self.dice.randint(1, 3)
        ids = {key: message[key] for key in ("client_message_id", "broker_message_id", "history_id")}
        topic = "news" if message["kind"] == "topic" else None
        self.inbox(name).append({"seq": seq, "sender_id": self.uid(message["from"]), **ids, "topic": topic})
        self.tables[f"{self.mesh}/inbox-{name}"]["body"].append(
            {"seq": seq, "broker_message_id": message["broker_message_id"], "body": message["words"]}
        )
        self.note(message, name, "delivered")

    def note(self, message: Row, name: str | None, what: str) -> None:
        events = self.broker["delivery_event"]
        at = {"mesh_id": 1, "history_id": message["history_id"]}
        events.append({"id": len(events) + 1, **at, "recipient_id": self.number(name) if name else 0, "what": what})

    def read(self, name: str) -> None:
        """Read all that is unread, and mark some of it."""
        unread = [row for row in self.inbox(name) if not row.get("is_read")]
        shown = [(row, self.messages.get(row["history_id"])) for row in unread]
        self.call(
            name,
            "recv",
            "ok",
            [
                {
                    "id": row["client_message_id"],
                    "key": row["broker_message_id"],
                    "version": row["history_id"],
                    "body": sha256(message["words"].encode()).hexdigest(),
                }
                for row, message in shown
                if message is not None
            ],
        )
        for row in unread[: self.dice.randint(0, len(unread))]:
            ev = self.dice.choice(["ok", "ok", "unknown"])
            row["is_read"] = True
            self.call(name, "ack", ev, key=row["broker_message_id"])
            if message := self.messages.get(row["history_id"]):
                self.note(message, name, "read")

    # --- taking turns ---

    def work(self, name: str) -> None:
        open_ = [one for one in self.messages.values() if one["kind"] == "queue" and not one.get("is_done")]
        if not open_:
            self.call(name, "claim", "ok", [{}], key=QUEUE)
            return
        message = open_[0]
        message["token"] = message.get("token", 0) + 1
        job = {"key": message["broker_message_id"], "version": message["token"]}
        self.call(name, "claim", "ok", [job], key=QUEUE)
        dice = self.dice.random()
        if dice < 0.6:
            message["is_done"] = True
            self.call(name, "done", "ok" if dice < 0.5 else "unknown", **job)
            self.note(message, None, "acted")
        elif job["version"] > 1:
            self.call(name, "done", "fail", key=job["key"], version=job["version"] - 1)

    def swap(self, name: str, version: int) -> None:
        ev = "unknown" if version % 3 == 2 else "ok"
        self.call(name, "swap", ev, key="document", id=str(version - 1), version=version)

    def visit(self, name: str, session: str) -> None:
        """Come twice under one key; the second time another instance takes over, and loses its socket."""
        for lease in (f"{self.mesh}-{session}-1", f"{self.mesh}-{session}-2"):
            self.lease(name, session, lease, "joined")
            for watcher in NAMES[:2]:
                self.log(watcher, "joined", "ok", self.now, key=name, id=session)
            last = lease
            if lease.endswith("2"):
                last = f"{lease}b"
                self.lease(name, session, lease, "ended")
                self.lease(name, session, last, "begun", "offline", "online", "swapped")
                self.call(name, "resume", "ok", id=f"token-{session}")
            self.lease(name, session, last, "offline", "left")
            for watcher in NAMES[:2]:
                self.log(watcher, "left", "ok", self.now, key=name, id=session)

    def lease(self, name: str, session: str, lease: str, *happened: str) -> None:
        """Append to the journal of leases."""
        events = self.broker["presence_event"]
        for what in happened:
            numbered = [row["seq"] for row in events if row["seq"] is not None]
            event = {"id": events[-1]["id"] + 1 if events else 1, "mesh_id": 1, "member_id": self.number(name)}
            event |= {"session_pubkey": session, "presence_uid": lease, "what": what}
            events.append({**event, "seq": max(numbered, default=0) + 1 if what in ("joined", "left") else None})

    # --- retention ---

    def prune(self, count: int) -> None:
        """Delete the oldest messages. Some ids are forgotten, and one is used anew."""
        oldest = [one for one in self.messages.values() if not one.get("is_gone")][:count]
        for message in oldest:
            message["is_gone"] = True
            message["waits"].clear()
            ids = {key: message[key] for key in ("sender_id", "client_message_id", "broker_message_id")}
            at = {"mesh_id": 1, "history_id": message["history_id"]}
            self.broker["tombstone"].append({"what": "message", **at, **ids})
            if not self.is_lake:
                for table in OF_MESSAGES:
                    self.broker[table][:] = [row for row in self.broker[table] if not at.items() <= row.items()]
        if not self.is_lake:
            del self.broker["presence_event"][:7]  # of the first that is left, the beginning is gone
        if oldest:
            self.forget(oldest[0])

    def sweep(self) -> None:
        """Take the oldest out of the inboxes."""
        for name in NAMES:
            del self.inbox(name)[:3]

    def forget(self, message: Row) -> None:
        ids = {key: message[key] for key in ("sender_id", "client_message_id", "broker_message_id")}
        self.broker["tombstone"].append({"what": "dedupe", "mesh_id": 1, "history_id": None, **ids})
        if not self.is_lake:
            dedupe = self.broker["client_message_dedupe"]
            dedupe[:] = [row for row in dedupe if not ids.items() <= row.items()]
        outbox = self.outbox(message["from"])  # and it is sent anew from an outbox that does not know the id
        outbox[:] = [row for row in outbox if row["client_message_id"] != message["client_message_id"]]
        self.send(message["from"], message["to"], message["client_message_id"])


def clean(seed: int, mesh: str = "mesh", *, steps: int = 120, is_lake: bool = True) -> Story:
    story = Story(seed, mesh, is_lake=is_lake)
    for name in NAMES:
        story.lease(name, "", f"{mesh}-{name}-daemon", "joined")  # beside whom sessions come and go
    for step in range(steps):
        who = story.dice.choice(NAMES)
        other = story.dice.choice([name for name in NAMES if name != who])
        story.send(who, story.dice.choice([other, other, TOPIC, QUEUE]), f"m{step:04}")
        for act, chance in ((story.drain, 0.5), (story.deliver, 0.5), (story.read, 0.2), (story.work, 0.3)):
            if story.dice.random() < chance:
                act(story.dice.choice(NAMES))
        if step % 10 == 0:
            story.swap(who, step // 10 + 1)
            story.visit(who, f"s{step}")
        if step == steps // 2:
            story.prune(5)
        if step == steps * 3 // 4 and not is_lake:
            story.sweep()
    return story


# --- as the checker takes it -----------------------------------------------------------------------


def history(stories: Iterable[Story]) -> History:
    lines = [line for story in stories for line in story.lines]
    return History([to_row(n, Line(**line), line["process"]) for n, line in enumerate(lines)])


def rows(stories: Iterable[Story]) -> dict[str, dict[str, list[tuple[Any, ...]]]]:
    """Return the tables of all stores, with the columns that are looked at."""
    return {
        source: {
            one.table: [tuple(row[column] for column in one.columns) for row in tables[one.table]]
            for one in INPUTS
            if kind_of(tables) is one.kind and one.table in tables
        }
        for story in stories
        for source, tables in story.tables.items()
    }
