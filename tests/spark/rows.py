"""Rows of a small broker's store, as a lake holds them: written as accepts write them, and made into frames."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from claudemesh.pipeline.catalogue import BROKER
from claudemesh.pipeline.shapes import Growth, Kind

Rows = dict[str, list[dict[str, Any]]]

_ARROW = {"bigint": pa.int64(), "string": pa.string(), "binary": pa.binary()}
ALICE, BOB, CAROL = 1, 2, 3
HOUR_MS = 3_600_000
NOW = 1_767_225_600_000  # the first instant of 2026


def empty() -> Rows:
    return {table.name: [] for table in BROKER.tables}


def town(mesh_id: int = 1) -> Rows:
    """Found a mesh of three, with a topic and a queue."""
    rows = empty()
    rows["mesh"] = [{"id": mesh_id, "uid": f"mesh-{mesh_id}", "slug": "town", "created_at": NOW}]
    rows["member"] = [
        {"id": _own(mesh_id, number), "uid": f"{name}-{mesh_id}", "mesh_id": mesh_id, "name": name}
        for number, name in ((ALICE, "alice"), (BOB, "bob"), (CAROL, "carol"))
    ]
    rows["topic"] = [{"id": _own(mesh_id, 1), "mesh_id": mesh_id, "name": "news"}]
    rows["queue"] = [{"id": _own(mesh_id, 1), "mesh_id": mesh_id, "name": "jobs"}]
    rows["history_counter"] = [{"mesh_id": mesh_id, "history_id": 0}]
    return rows


def accept(  # noqa: PLR0913 - what a message may be
    rows: Rows,
    kind: str,
    id_: str,
    *,
    at: int = NOW,
    sender: int = ALICE,
    to: Iterable[int] = (BOB,),
    mentions: Iterable[str] = (),
) -> int:
    """Write all that one accept writes."""
    counter = rows["history_counter"][0]
    counter["history_id"] += 1
    mesh_id, number = counter["mesh_id"], counter["history_id"]
    message = {"mesh_id": mesh_id, "history_id": number}
    sent = {
        "mesh_id": mesh_id,
        "sender_id": _own(mesh_id, sender),
        "client_message_id": id_,
        "broker_message_id": f"B-{mesh_id}-{id_}",
    }
    rows["client_message_dedupe"].append({**sent, "request_fingerprint": id_.encode(), "first_seen_at": at})
    rows["message_history"].append({**message, **sent, "kind": kind, "accepted_at": at})
    if kind == "topic":
        rows["topic_message"].append({**message, "topic_id": _own(mesh_id, 1)})
    if kind == "dm":
        rows["message_queue"].append({**message, "recipient_id": _own(mesh_id, next(iter(to)))})
    if kind == "queue":
        rows["message_queue"].append({**message, "queue_id": _own(mesh_id, 1)})
        rows["queue_lease"].append({**message, "queue_id": _own(mesh_id, 1)})
    recipients = [0] if kind == "queue" else to
    rows["delivery_queue"] += [{**message, "recipient_id": _own(mesh_id, one)} for one in recipients]
    rows["mention_index"] += [{**message, "mentioned": name} for name in mentions]
    return number


def happen(  # noqa: PLR0913 - what a journal has
    rows: Rows, history_id: int, what: str, recipient: int = BOB, *, at: int = NOW, reason: str | None = None
) -> None:
    """Append to the journal of deliveries."""
    mesh_id = rows["history_counter"][0]["mesh_id"]
    rows["delivery_event"].append(
        {
            "id": len(rows["delivery_event"]) + 1,
            "mesh_id": mesh_id,
            "history_id": history_id,
            "recipient_id": _own(mesh_id, recipient),
            "what": what,
            "at": at,
            "reason": reason,
        }
    )


def lease(  # noqa: PLR0913 - what a journal has
    rows: Rows,
    what: str,
    uid: str,
    member: int = ALICE,
    *,
    at: int = NOW,
    session: str = "",
    because: str | None = None,
) -> None:
    """Append to the journal of leases."""
    mesh_id = rows["history_counter"][0]["mesh_id"]
    is_announced = what in ("joined", "left")
    numbers = [row["seq"] for row in rows["presence_event"] if row["seq"] is not None]
    rows["presence_event"].append(
        {
            "id": 1000 * mesh_id + len(rows["presence_event"]),
            "mesh_id": mesh_id,
            "member_id": _own(mesh_id, member),
            "session_pubkey": session,
            "presence_uid": uid,
            "what": what,
            "at": at,
            "because": because,
            "seq": max(numbers, default=0) + 1 if is_announced else None,
        }
    )


def bury(rows: Rows, history_id: int) -> None:
    """Leave the tombstone of a message that the store deleted. Its rows stay: they were copied before."""
    (sent,) = [one for one in rows["message_history"] if one["history_id"] == history_id]
    named = {
        name: sent[name]
        for name in ("mesh_id", "history_id", "sender_id", "client_message_id", "broker_message_id")
    }
    rows["tombstone"].append({"id": len(rows["tombstone"]) + 1, "what": "message", **named})


def forget(rows: Rows, id_: str, sender: int = ALICE) -> None:
    """Leave the tombstone of an id, which also names its message."""
    named = {"sender_id": sender, "client_message_id": id_}
    known = [row for row in rows["client_message_dedupe"] if named.items() <= row.items()]
    named |= {"broker_message_id": known[0]["broker_message_id"] if known else None}
    rows["tombstone"].append({"id": len(rows["tombstone"]) + 1, "what": "dedupe", "mesh_id": 1, **named})


def _own(mesh_id: int, number: int) -> int:
    """Give a number that no other mesh of the store has. Nobody, 0, is nobody everywhere."""
    return number and number + 10 * (mesh_id - 1)


def together(*stores: Rows) -> Rows:
    return {name: [row for rows in stores for row in rows[name]] for name in empty()}


def frames(spark: SparkSession, rows: Rows, kind: Kind = BROKER) -> Mapping[str, DataFrame]:
    tables = [*kind.wanted(Growth.APPEND, bodies=False), *kind.wanted(Growth.WHOLE, bodies=False)]
    return {
        table.name: spark.createDataFrame(
            pa.Table.from_pylist(
                rows.get(table.name, []),
                pa.schema([(name, _ARROW[type_]) for name, type_ in table.columns.items()]),
            )
        )
        for table in tables
    }
