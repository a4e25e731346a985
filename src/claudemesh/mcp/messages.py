"""Sending, reading, marking, tracing, and sending anew what died."""

from typing import Any, Final, cast

from claudemesh.daemon.client.http1 import quote
from claudemesh.kernel.errors import DeadlineExceeded, InvalidRequest, StateError
from claudemesh.kernel.texts import escape
from claudemesh.mcp import arguments, results
from claudemesh.mcp.parts import Parts, show, show_meta
from claudemesh.sdk import asks
from claudemesh.sdk.asks import Ask
from claudemesh.sdk.values import Draft, State
from claudemesh.wire.json import dump_json

Json = dict[str, Any]

META_CHARS: Final = 2_000  # of each message on a page
META_CHARS_MAX: Final = 1 << 19  # of one message, with all that is escaped: whatever a broker takes


# --- sending -------------------------------------------------------------------------------------------


async def send(parts: Parts, asked: arguments.Send) -> results.Sent:
    """Send. The key is the message's own id, so the daemon itself takes it once, however often it is asked."""
    key = asked.idempotency_key or parts.mint()
    draft = Draft(
        asked.to,
        asked.message,
        priority=asked.priority,
        meta=asked.meta,
        reply_to=asked.reply_to,
        id=key,
        mentions=asked.mentions,
    )
    receipt: Json = await parts.daemon.ask(asks.send(draft, parts.mint))
    state: str = "accepted" if receipt["status"] == "accepted" else "queued"
    message_id: str | None = receipt.get("broker_message_id")
    is_reached = None
    if asked.wait is not None:
        state, message_id, is_reached = await _wait(parts, key, asked.wait, asked.timeout_s)
    return results.Sent(
        idempotency_key=key,
        replayed=receipt.get("duplicate", False),
        state=cast("Any", state),
        said=say(state),
        message_id=message_id,
        waited_for=asked.wait,
        is_reached=is_reached,
    )


async def _wait(parts: Parts, key: str, wanted: State, timeout_s: float) -> tuple[str, str | None, bool]:
    """Wait with a bound. What did not come in time is no error: the message stays on its way."""
    try:
        life = await parts.daemon.run(lambda plans: plans.wait(key, wanted, int(timeout_s * 1000)))
    except (DeadlineExceeded, StateError) as error:
        return str(error.extras.get("state", "queued")), None, False
    return life.state, life.broker_message_id, True


def say(state: str) -> str:
    return results.STATES.get(state, f"{state}: a word of a newer daemon.")


# --- the inbox -----------------------------------------------------------------------------------------


async def inbox(parts: Parts, asked: arguments.Inbox) -> results.Messages:
    if asked.id is not None:
        return await _one(parts, asked)
    if asked.body_from:
        raise InvalidRequest("body_from is for one message: name it with id")
    page: Json = await parts.daemon.ask(asks.get(_where(asked), _query(asked)))
    chars = asked.body_chars or arguments.BODY_CHARS
    shown = [show_message(one, parts, 0, chars, META_CHARS) for one in page["messages"]]
    cut = next((one for one in shown if one.is_truncated), None)
    return results.Messages(
        messages=shown,
        next_cursor=page["next_cursor"],
        read_on=None if cut is None else f'inbox with id="{cut.id}" shows more of it',
    )


async def _one(parts: Parts, asked: arguments.Inbox) -> results.Messages:
    found = await parts.daemon.get(f"/v1/inbox/message/{quote(asked.id or '')}")
    chars = asked.body_chars or arguments.BODY_CHARS_MAX
    following = show(found["body"], asked.body_from, chars).following
    return results.Messages(
        messages=[show_message(found, parts, asked.body_from, chars, META_CHARS_MAX)],
        next_cursor=None,
        read_on=None if following is None else f'inbox with id="{asked.id}" and body_from={following}',
    )


def _where(asked: arguments.Inbox) -> str:
    return "/v1/inbox" if asked.search is None else "/v1/inbox/search"


def _query(asked: arguments.Inbox) -> dict[str, str | int | bool | None]:
    paging: dict[str, str | int | bool | None] = {"limit": asked.limit, "cursor": asked.cursor}
    if asked.search is not None:
        if asked.topic is not None or asked.sender is not None or asked.mentions_me or asked.unread_only:
            raise InvalidRequest("search looks through all messages: no topic, sender, mentions_me or unread_only")
        return {"q": asked.search, **paging}
    return {
        "topic": None if asked.topic is None else asks.topic_name(asked.topic),
        "from": asked.sender,
        "mentions": "me" if asked.mentions_me else None,
        "unread": asked.unread_only is not False,
        **paging,
    }


def show_message(found: Json, parts: Parts, start: int, chars: int, meta_chars: int) -> results.Message:
    """Show a message; its texts are another's, and can do nothing but be read."""
    body = show(found["body"], start, chars)
    meta = show_meta(found["meta"])
    meta_length = len(dump_json(meta).decode())
    is_meta_left_out = meta_length > meta_chars
    meant = found.get("to_session")
    return results.Message(
        id=found["broker_message_id"],
        sender_name=escape(found["from_name"]),
        sender=found["from"],
        topic=found["topic"],
        body=body.text,
        body_chars=len(found["body"]),
        is_truncated=body.is_truncated or is_meta_left_out,
        meta=None if is_meta_left_out else meta,
        meta_chars=meta_length if is_meta_left_out else None,
        priority=found["priority"],
        reply_to=found["reply_to_id"],
        received_at=found["received_at"],
        is_read=found["read_at"] is not None,
        is_to_this_session=meant is not None and meant == parts.standing.session_pubkey,
    )


async def ack(parts: Parts, asked: arguments.Ack) -> results.Acked:
    """Mark as read. A mark stays what it was first, so after a crash it is simply said again."""

    async def mark(key: str) -> results.Acked:
        told = await parts.daemon.say("/v1/inbox/read", {"ids": asked.ids})
        return results.Acked(idempotency_key=key, replayed=False, marked=told["marked"])

    return await parts.once("ack", asked, results.Acked, mark)


# --- what became of it ---------------------------------------------------------------------------------


async def trace(parts: Parts, asked: arguments.Trace) -> results.Traced:
    life: Json = await parts.daemon.ask(asks.trace(asked.id))
    return results.Traced(
        client_message_id=life["client_message_id"],
        message_id=life["broker_message_id"],
        direction=life["direction"],
        state=life["state"],
        said=say(life["state"]),
        steps=[
            results.Step(
                state=step["state"],
                at=step["at"],
                evidence=escape(step["evidence"]),
                recipient=step.get("recipient"),
            )
            for step in life["steps"]
        ],
        is_current=life["is_current"],
    )


REQUEUED: Final = "Requeued: it waits on this machine under a new id. Nobody has it yet; it is not done."
HAD_ARRIVED: Final = "It had arrived: the broker had accepted it before, and nothing was sent again."


async def requeue(parts: Parts, asked: arguments.Requeue) -> results.Requeued:
    """Send a row anew. The successor's id is made of the key, so after a crash the daemon answers as before."""

    async def again(key: str) -> results.Requeued:
        successor_id = parts.mark("requeue", key)
        patch = {name: value for name in ("to", "message") if (value := getattr(asked, name)) is not None}
        body: Json = {"id": asked.id, "new_client_id": successor_id, "force": asked.force}
        body |= {"patch": patch} if patch else {}
        decided: Json = await parts.daemon.ask(Ask(method="POST", path="/v1/outbox/requeue", body=body))
        has_arrived = decided["status"] == "done"
        return results.Requeued(
            idempotency_key=key,
            replayed=decided.get("replayed", False),
            outcome="had_arrived" if has_arrived else "requeued",
            said=HAD_ARRIVED if has_arrived else REQUEUED,
            id=asked.id,
            successor=decided.get("superseded_by"),
            message_id=decided.get("broker_message_id"),
        )

    return await parts.once("requeue", asked, results.Requeued, again)
