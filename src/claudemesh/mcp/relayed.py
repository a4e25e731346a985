"""Writes through the relay, and the conflicts that it keeps for somebody to decide."""

from typing import Any, Final, Literal, cast
from urllib.parse import unquote, urlsplit

from claudemesh.kernel.errors import DependencyError, InvalidRequest, StateError
from claudemesh.kernel.texts import escape
from claudemesh.mcp import arguments, results
from claudemesh.mcp.parts import Parts, show, show_meta
from claudemesh.wire.json import dump_json

Json = dict[str, Any]

DIGITS_MAX: Final = 18  # a row's number has no more
PLACE: Final = "relay"
RELAYS_OWN: Final = frozenset({"/health", "/status", "/metrics", "/replay"})  # what it answers without the hub

_QUEUED: Final = 202
_REPLAYED: Final = "idempotent-replayed"


async def write(parts: Parts, asked: arguments.Write) -> results.Written:
    """Write through the relay. It knows the key: it forwards or queues under it once, however often asked."""
    if unquote(urlsplit(asked.path).path) in RELAYS_OWN:
        raise InvalidRequest("path: the relay itself answers there, and no hub is written to")
    key = asked.idempotency_key or parts.mint()
    answer = await parts.relay.write(asked.method, asked.path, asked.body, key, asked.if_match)
    told = answer.checked()
    waits = answer.status == _QUEUED and isinstance(told, dict) and told.get("queued") is True
    outcome = told.get("state", "queued") if waits else "forwarded"
    if outcome not in results.WRITES:
        raise DependencyError(f"the relay says {escape(outcome)!r} of the write, which nobody here understands")
    return results.Written(
        idempotency_key=key,
        replayed=answer.headers.get(_REPLAYED) == "true",
        outcome=cast("Literal['forwarded', 'queued', 'sending', 'conflict']", outcome),
        is_done=outcome == "forwarded",
        said=results.WRITES[outcome],
        status=answer.status,
        answer=None if waits else _answer(told),
        outbox_id=told.get("outbox_id") if waits else None,
    )


def _answer(told: object) -> object:
    """Return what the hub said; of what is too long, its beginning as text."""
    piece = show(dump_json(told).decode(), 0, arguments.BODY_CHARS_MAX)
    return piece.text if piece.is_truncated else show_meta(told)


# --- conflicts -----------------------------------------------------------------------------------------


async def conflicts(parts: Parts, asked: arguments.Conflicts) -> results.Conflicts:
    if asked.keep is not None:
        return await _resolve(parts, asked)
    if asked.id is not None:
        found = await _shown(parts, asked.id)
        return _told(parts, asked, [_conflict(found, arguments.BODY_CHARS_MAX)], None)
    after = parse_number(asked.cursor)
    page = await parts.relay.at_desk(lambda desk: desk.page("conflict", after, asked.limit))
    each = [await _shown(parts, one["id"]) for one in page["items"]]
    shown = [_conflict(one, arguments.BODY_CHARS) for one in each]
    return _told(parts, asked, shown, None if page["next_cursor"] is None else str(page["next_cursor"]))


def _told(
    parts: Parts, asked: arguments.Conflicts, shown: list[results.Conflict], cursor: str | None
) -> results.Conflicts:
    cut = next((one for one in shown if one.is_truncated), None)
    return results.Conflicts(
        idempotency_key=asked.idempotency_key or parts.mint(),
        replayed=False,
        conflicts=shown,
        next_cursor=cursor,
        said=f"{len(shown)} shown" if shown else "Nothing is in conflict.",
        read_on=None if cut is None or asked.id is not None else f'conflicts with id="{cut.id}" shows it whole',
    )


async def _resolve(parts: Parts, asked: arguments.Conflicts) -> results.Conflicts:
    """Decide one. Who decided is named after the key, so a decision that crashed before it was kept is found."""
    envelope, keep = asked.id, asked.keep
    if envelope is None or keep is None:
        raise InvalidRequest("keep needs the id of the conflict that it decides")

    async def decide(key: str) -> results.Conflicts:
        by, is_ours = parts.mark("conflicts", key, PLACE), False
        try:
            found = await parts.relay.at_desk(lambda desk: desk.decide("resolve", envelope, by, keep))
        except StateError:
            found = await _shown(parts, envelope)
            if not any(by in f"{event['by']} {event['error']}" for event in found["happened"]):
                raise
            is_ours = True
        said = (
            "Ours goes to the hub next, over what was seen there and nothing newer. It is not done yet."
            if keep == "mine"
            else "Theirs stays; our write was given up."
        )
        return results.Conflicts(
            idempotency_key=key,
            replayed=is_ours,
            conflicts=[_conflict(found, arguments.BODY_CHARS)],
            next_cursor=None,
            resolved=keep,
            said=said,
        )

    return await parts.once("conflicts", asked, results.Conflicts, decide, PLACE)


async def _shown(parts: Parts, any_id: str) -> Json:
    return await parts.relay.at_desk(lambda desk: desk.show(any_id))


def _conflict(found: Json, chars: int) -> results.Conflict:
    mine, theirs = (show(dump_json(found[name]).decode(), 0, chars) for name in ("mine", "theirs"))
    return results.Conflict(
        id=found["id"],
        request=escape(found["request"]),
        key=escape(found["idempotency_key"]),
        mine=mine.text,
        theirs=theirs.text,
        is_truncated=mine.is_truncated or theirs.is_truncated,
        state=found["state"],
    )


def parse_number(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not cursor.isascii() or not cursor.isdecimal() or len(cursor) > DIGITS_MAX:
        raise InvalidRequest("the cursor is not one of this list: begin anew")
    return int(cursor)
