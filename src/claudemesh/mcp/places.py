"""Who is there, what waits, which topics there are."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from claudemesh.edge.concerns import WAITING, Concern, judge
from claudemesh.kernel.errors import InvalidRequest, MeshError
from claudemesh.kernel.texts import escape
from claudemesh.mcp import arguments, results
from claudemesh.mcp.parts import Parts
from claudemesh.sdk import asks
from claudemesh.wire.names import parse_topic

Json = dict[str, Any]
T = TypeVar("T")

ABOUT_CHARS: Final = 280


async def peers(parts: Parts, asked: arguments.Peers) -> results.Peers:
    found = await parts.daemon.get("/v1/peers", all=asked.everyone)
    page, following = cut(found["peers"], asked.cursor, asked.limit, lambda peer: str(peer["pubkey"]))
    return results.Peers(peers=[_peer(one) for one in page], next_cursor=following)


def _peer(found: Json) -> results.Peer:
    return results.Peer(
        name=escape(found["name"]),
        key=found["pubkey"],
        status=found["status"],
        about=escape(found.get("about", ""))[:ABOUT_CHARS],
        sessions=[
            results.Session(
                name=escape(one.get("display_name", "")),
                key=one["session_pubkey"],
                role=escape(one.get("role", "")),
                cwd=escape(one.get("cwd", "")),
            )
            for one in found.get("sessions") or ()
        ],
        reach=found.get("reach"),
    )


def cut(
    items: Sequence[T], cursor: str | None, limit: int, name: Callable[[T], str]
) -> tuple[Sequence[T], str | None]:
    """Return a page of what came as one list, and the cursor of the next: the name of the last one shown."""
    start = 0
    if cursor is not None:
        places = [place for place, item in enumerate(items) if name(item) == cursor]
        if not places:
            raise InvalidRequest("the cursor is not of this list, or what it named is gone: begin anew")
        start = places[0] + 1
    page = items[start : start + limit]
    return page, name(page[-1]) if start + limit < len(items) else None


# --- whether anything waits ----------------------------------------------------------------------------


async def status(parts: Parts, asked: arguments.Status) -> results.Status:
    daemon, dead, following = await _daemon(parts, asked)
    relay, waits_there = await _relay(parts)
    why = [*_waits(daemon), *waits_there]
    return results.Status(
        nothing_waits=not why,
        why=why,
        daemon=daemon,
        relay=relay,
        is_session_registered=parts.standing.session_pubkey is not None,
        dead_letters=dead,
        next_cursor=following,
    )


async def _daemon(
    parts: Parts, asked: arguments.Status
) -> tuple[results.DaemonState, list[results.DeadLetter], str | None]:
    """Tell how the daemon is. That it is not there is an answer, and no error."""
    try:
        health = await parts.daemon.get("/v1/health")
        page = await parts.daemon.get("/v1/outbox", failed=True, limit=asked.limit, cursor=asked.cursor)
    except InvalidRequest:
        raise
    except MeshError as error:
        return results.DaemonState(is_running=False, said=f"{error.title}: {error.detail}"), [], None
    link = "connected to the broker" if health["connected"] else f"not connected to the broker ({health['link']})"
    state = results.DaemonState(
        is_running=True,
        said=f"{health['member']} in {health['mesh']}, {link}",
        mesh=health["mesh"],
        member=health["member"],
        is_connected=health["connected"],
        queued=health["queue_depth"] + health["inflight"],
        dead=health["dead"],
    )
    dead = [
        results.DeadLetter(
            id=row["id"],
            to=escape(row["to"]),
            reason=None if row["last_error"] is None else escape(row["last_error"]),
            enqueued_at=row["enqueued_at"],
        )
        for row in page["rows"]
    ]
    return state, dead, page["next_cursor"]


_AT_RELAY: Final = {
    Concern.DAMAGED: "nobody knows what waits at the relay: its outbox is damaged",
    Concern.PENDING: "{} writes are queued at the relay: the hub does not have them",
    Concern.CONFLICTS: "{} writes are in conflict: decide them with conflicts",
    Concern.DEAD: "{} writes are dead at the relay: the hub never got them",
}


async def _relay(parts: Parts) -> tuple[results.RelayState, list[str]]:
    """Tell how the relay is, and what keeps work that goes through it from being done."""
    try:
        found = await parts.relay.status()
    except MeshError as error:
        said = f"not known: {error}"
        unknown = results.RelayState(is_running=False, is_used=True, is_known=False, said=said)
        return unknown, [f"the relay's queue is {said}"]
    is_used = found["running"] or found["outbox"] == "there"
    if not found["outbox_usable"]:
        said = "not known: the relay's outbox is damaged, and `statehub outbox recover` saves what can be read"
    elif not is_used:
        said = "no relay has been used here"
    else:
        said = f"{found['pending']} queued, {found['conflicts']} in conflict, {found['dead']} dead; the relay "
        said += f"runs, and the hub is {found['upstream_state']}" if found["running"] else "does not run"
    state = results.RelayState(
        is_running=found["running"],
        is_used=is_used,
        is_known=found["outbox_usable"],
        said=said,
        pending=found["pending"],
        conflicts=found["conflicts"],
        dead=found["dead"],
        is_hub_reachable=found["upstream_reachable"],
    )
    return state, [_AT_RELAY[one].format(found.get(one)) for one in judge(found) if one in WAITING]


def _waits(daemon: results.DaemonState) -> list[str]:
    if not daemon.is_running:
        return [f"the daemon cannot be asked: {daemon.said}"]
    why = [f"{daemon.queued} messages are queued here, and not accepted by the mesh"] if daemon.queued else []
    return why + (
        [f"{daemon.dead} messages are dead: requeue them, or say that they are lost"] if daemon.dead else []
    )


# --- topics and queues ---------------------------------------------------------------------------------

_VERBS: Final = {"create": "create", "join": "subscribe", "leave": "unsubscribe"}
_THEN: Final = "(so an earlier call under this key left it: action=list tells how it is now)"
_SAID: Final = {"create": "is there", "join": "is joined: what is posted from now on arrives", "leave": "is left"}


async def topics(parts: Parts, asked: arguments.Topics) -> results.Topics:
    """List, make, join, leave. Each of them said twice is the same as once, so a crash costs nothing."""
    if asked.action == "list":
        return await _list(parts, asked)
    if asked.name is None:
        raise InvalidRequest(f"{asked.action} needs the name of a topic")
    is_queue = asked.name.startswith(asks.QUEUE_MARK)
    if is_queue and asked.action != "create":
        raise InvalidRequest("a queue is created, and then worked with claim: nobody joins or leaves it")
    name = parse_topic(asks.queue_name(asked.name) if is_queue else asks.topic_name(asked.name))

    async def change(key: str) -> results.Topics:
        ask = asks.create_queue(name) if is_queue else asks.on_topic(_VERBS[asked.action], name)
        await parts.daemon.ask(ask)
        mark = asks.QUEUE_MARK if is_queue else asks.TOPIC_MARK
        said = f"{mark}{name} {_SAID[asked.action]}"
        return results.Topics(idempotency_key=key, replayed=False, action=asked.action, said=said)

    told = await parts.once("topics", asked, results.Topics, change)
    return replace(told, said=f"{told.said} {_THEN}") if told.replayed else told


async def _list(parts: Parts, asked: arguments.Topics) -> results.Topics:
    found = await parts.daemon.get("/v1/topic/list")
    page, following = cut(found["topics"], asked.cursor, asked.limit, lambda topic: str(topic["name"]))
    queues = (await parts.daemon.get("/v1/queue/list"))["queues"] if asked.cursor is None else []
    return results.Topics(
        idempotency_key=asked.idempotency_key or parts.mint(),
        replayed=False,
        action="list",
        said=f"{len(found['topics'])} topics, {len(queues)} queues" if asked.cursor is None else "more topics",
        topics=[
            results.Topic(name=one["name"], subscribers=one["subscribers"], is_joined=one["subscribed"])
            for one in page
        ],
        queues=[
            results.Queue(name=one["name"], ready=one["ready"], leased=one["leased"])
            for one in queues[: arguments.LIMIT_MAX]
        ],
        next_cursor=following,
    )
