"""What one transaction will write, decided before its first statement.

A store loads the rows that some writes are about and hands them over. Each write is decided on what the ones before
it leave; it counts only when it is kept, and until then it has cost nothing: a write whose mark is lost leaves no
trace, and its neighbours go on. What is kept comes out as lines of the journal, rows and counts.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from claudemesh.asgi.messages import Response
from claudemesh.hub.model import Asked, Changed, Create, Entry, Key, Kind, Outcome, Row, Tally, Write
from claudemesh.hub.policy import decide, status_of
from claudemesh.hub.rendering import render_answer, render_expectation


def keys_of(writes: Iterable[Write]) -> list[Key]:
    """Return the rows that have to be loaded, each once, in an order that everybody locks them in."""
    return sorted({(a.kind, a.id) for write in writes for a in write.asks if not isinstance(a.change, Create)})


@dataclass(slots=True)
class Decision:
    write: Write
    outcomes: list[Outcome]
    answer: Response

    @property
    def is_done(self) -> bool:
        """Whether there is an answer that a retry may be given."""
        return self.answer.status < 400  # noqa: PLR2004  what HTTP calls an error


@dataclass(slots=True)
class Draft:
    standing: dict[Key, Row]
    _lines: list[tuple[Write, Asked, Changed]] = field(default_factory=list)

    @classmethod
    def on(cls, rows: Iterable[Row]) -> "Draft":
        return cls({(row.kind, row.id): row for row in rows})

    def decide(self, write: Write) -> Decision:
        """Say what would come of it."""
        outcomes: list[Outcome] = []
        meanwhile: dict[Key, Row | None] = {}
        for asked in write.asks:
            key = (asked.kind, asked.id)
            outcome = decide(meanwhile[key] if key in meanwhile else self.standing.get(key), asked, write.now_ms)
            if isinstance(outcome, Changed):
                meanwhile[key] = None if outcome.is_deleted else outcome.after
            outcomes.append(outcome)
        return Decision(write, outcomes, render_answer(write, outcomes))

    def keep(self, decision: Decision) -> None:
        """Have it written."""
        for asked, outcome in zip(decision.write.asks, decision.outcomes, strict=True):
            if isinstance(outcome, Changed):
                key = (asked.kind, asked.id)
                if outcome.is_deleted:
                    del self.standing[key]
                else:
                    self.standing[key] = outcome.after
                self._lines.append((decision.write, asked, outcome))

    # --- what is to be written ---------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._lines)

    def entries(self, last_seq: int) -> Iterator[Entry]:
        """Yield the lines of the journal, numbered on from its last."""
        for seq, (write, asked, changed) in enumerate(self._lines, last_seq + 1):
            origin, after = write.origin, changed.after
            yield Entry(
                seq,
                after.updated_at,
                after.kind,
                after.id,
                after.revision - 1,
                after.revision,
                origin.method,
                origin.path,
                origin.key,
                origin.source_host,
                origin.source_agent,
                render_expectation(asked.expected),
                after.fields,
                changed.is_deleted,
            )

    def rows(self, last_seq: int) -> list[Row]:
        """Return the rows as they will stand; a new one's place is that of its first line in the journal."""
        places: dict[Key, int] = {}
        touched: dict[Key, None] = {}
        for seq, (_, _, changed) in enumerate(self._lines, last_seq + 1):
            key = (changed.after.kind, changed.after.id)
            touched[key] = None
            if changed.before is None:
                places[key] = seq
        found = ((key, self.standing[key]) for key in touched if key in self.standing)
        return [replace(row, seq=places[key]) if key in places else row for key, row in found]

    def gone(self) -> list[Key]:
        """Return the rows that will not stand any more."""
        keys = ((changed.after.kind, changed.after.id) for _, _, changed in self._lines if changed.is_deleted)
        return list(dict.fromkeys(keys))

    def tallies(self) -> list[Tally]:
        """Return by how much the counts change, sorted."""
        counts: Counter[tuple[Kind, str]] = Counter()
        for _, _, changed in self._lines:
            if changed.before is not None:
                counts[changed.after.kind, status_of(changed.before) or ""] -= 1
            if not changed.is_deleted:
                counts[changed.after.kind, status_of(changed.after) or ""] += 1
        return [Tally(kind, status, rows) for (kind, status), rows in sorted(counts.items()) if rows]
