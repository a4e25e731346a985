"""The hub as a plain dictionary: what every backend must do, said once more and without their code.

It decides by itself, and writes its answers with `json`: only the values are the hub's own.
"""

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from claudemesh.asgi.messages import Response
from claudemesh.hub.draft import Decision
from claudemesh.hub.model import (
    Asked,
    Changed,
    Create,
    Delete,
    Kind,
    Newest,
    Outcome,
    Page,
    Refused,
    Row,
    SetOnce,
    Shape,
    Summary,
    Tally,
    Unchanged,
    Update,
    Write,
)
from claudemesh.idempotency import KeptResponse, Mark
from claudemesh.kernel.errors import NotFound
from claudemesh.kernel.write_errors import MarkLost, RevisionConflict, StaleVersion


class OracleHub:
    def __init__(self) -> None:
        self.rows: dict[tuple[Kind, str], Row] = {}
        self.journal: list[dict[str, Any]] = []

    async def write(self, write: Write, mark: Mark | None = None) -> Decision:
        rows, journal = dict(self.rows), list(self.journal)
        outcomes = [self._one(write, asked, rows, journal) for asked in write.asks]
        answer = render(write, outcomes)
        if mark is not None and answer.status < 400:
            mark.complete(None, KeptResponse(answer.status, answer.headers, answer.body))
        self.rows, self.journal = rows, journal
        return Decision(write, outcomes, answer)

    def _one(
        self, write: Write, asked: Asked, rows: dict[tuple[Kind, str], Row], journal: list[dict[str, Any]]
    ) -> Outcome:
        key = (asked.kind, asked.id)
        before = rows.get(key)
        outcome = decide(before, asked, write.now_ms, len(journal) + 1)
        if isinstance(outcome, Changed):
            journal.append({
                "seq": len(journal) + 1,
                "at": outcome.after.updated_at,
                "kind": asked.kind,
                "entity_id": asked.id,
                "base_revision": before.revision if before else 0,
                "revision": outcome.after.revision,
                "method": write.origin.method,
                "path": write.origin.path,
                "idempotency_key": write.origin.key,
                "source_host": write.origin.source_host,
                "source_agent": write.origin.source_agent,
                "fields": outcome.after.fields,
                "deleted": int(outcome.is_deleted),
            })  # fmt: skip
            if outcome.is_deleted:
                del rows[key]
            else:
                rows[key] = outcome.after
        return outcome

    async def get(self, kind: Kind, row_id: str) -> Row | None:
        return self.rows.get((kind, row_id))

    async def page(self, kind: Kind, after_seq: int, limit: int) -> Page:
        found = sorted((row.seq, row) for (of, _), row in self.rows.items() if of is kind and row.seq > after_seq)
        shown = [row for _, row in found[:limit]]
        return Page(shown, shown[-1].seq if len(found) > limit else None)

    async def summary(self, newest: int) -> Summary:
        counts = Counter((row.kind, json.loads(row.fields).get("status", "")) for row in self.rows.values())
        last = [
            Newest(e["seq"], e["kind"], e["entity_id"], e["revision"], e["at"], bool(e["deleted"]))
            for e in reversed(self.journal)
        ]
        return Summary([Tally(kind, status, n) for (kind, status), n in sorted(counts.items())], last[:newest])


def decide(row: Row | None, asked: Asked, now_ms: int, seq: int) -> Outcome:
    change, expected = asked.change, asked.expected
    if isinstance(change, Create):
        return Changed(None, Row(asked.kind, asked.id, seq, 1, now_ms, now_ms, change.fields))
    if row is None:
        return Refused(NotFound())
    fields = json.loads(row.fields)
    if expected.revisions is not None and row.revision not in expected.revisions:
        return Refused(StaleVersion(), row)
    wrong_time = expected.updated_at is not None and expected.updated_at != row.updated_at
    wrong_status = expected.status is not None and expected.status != fields.get("status")
    if wrong_time or wrong_status:
        return Refused(RevisionConflict(), row)
    if isinstance(change, SetOnce) and fields[change.name] is not None:
        return Unchanged(row)
    if isinstance(change, Update):
        fields.update(change.values)
    elif isinstance(change, SetOnce):
        fields[change.name] = change.value
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    at = now_ms if now_ms > row.updated_at else row.updated_at + 1
    after = Row(row.kind, row.id, row.seq, row.revision + 1, row.created_at, at, text)
    return Changed(row, after, isinstance(change, Delete))


# --- answers ---------------------------------------------------------------------------------------


def instant(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shown(row: Row, before: Row | None = None) -> dict[str, Any]:
    document = {
        "id": row.id,
        **json.loads(row.fields),
        "revision": row.revision,
        "created_at": instant(row.created_at),
        "updated_at": instant(row.updated_at),
    }
    if before is not None:
        document["previous"] = {
            "revision": before.revision,
            "updated_at": instant(before.updated_at),
            "status": json.loads(before.fields).get("status"),
        }
    return document


def render(write: Write, outcomes: list[Outcome]) -> Response:
    if write.shape is Shape.LIST:
        items = [item(asked.id, one) for asked, one in zip(write.asks, outcomes, strict=True)]
        return Response(200, json.dumps({"items": items}).encode())
    (outcome,) = outcomes
    match outcome:
        case Refused(error, current):
            told = {"code": error.code, **({} if current is None else {"current": shown(current)})}
            return Response(error.status, json.dumps(told).encode())
        case Changed(is_deleted=True):
            return Response(204)
        case Changed(before, row):
            body = json.dumps(shown(row, before)).encode()
            return Response(200 if before else 201, body, ((b"etag", f'"{row.revision}"'.encode()),))
        case Unchanged(row):
            return Response(200, json.dumps(shown(row, row)).encode(), ((b"etag", f'"{row.revision}"'.encode()),))


def item(row_id: str, outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, Refused):
        current = {} if outcome.current is None else {"current": shown(outcome.current)}
        return {
            "id": row_id,
            "http_status": outcome.error.status,
            "problem": {"code": outcome.error.code, **current},
        }
    row, before = (outcome.row, outcome.row) if isinstance(outcome, Unchanged) else (outcome.after, outcome.before)
    return {"id": row_id, "http_status": 200, "task": shown(row, before)}


class OracleKeys:
    """Marks as a dictionary: who holds a key, and what was kept under it."""

    def __init__(self) -> None:
        self.marks: dict[str, tuple[int, KeptResponse | None]] = {}

    def complete(self, _connection: object, claim: Any, settlement: Any) -> None:  # noqa: ANN401  values of the keys
        token, kept = self.marks[claim.key]
        if token != claim.token or kept is not None:
            raise MarkLost
        self.marks[claim.key] = (token, settlement.response)
