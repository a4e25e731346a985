"""Sends: parse, accept, answer. The status code and the word come from the table in `kernel.outbox`."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from claudemesh.asgi.messages import Request, Response, json_response
from claudemesh.asgi.routes import Handler, Header, Route
from claudemesh.daemon.http.parts import Parts
from claudemesh.daemon.model import SendAsked
from claudemesh.daemon.policy import TOPIC_MARK, Answer
from claudemesh.daemon.service import BATCH_MAX
from claudemesh.kernel.errors import (
    IdempotencyConflict,
    InvalidClientMessageId,
    InvalidRequest,
    MeshError,
    PayloadTooLarge,
    StoreFull,
    StoreUnavailable,
    UnknownDestination,
)
from claudemesh.kernel.fingerprint import Priority, fold_mentions
from claudemesh.kernel.ids import derive_client_message_id
from claudemesh.wire import problem

KEY_HEADER: Final = "Idempotency-Key"


class SendBody(msgspec.Struct, frozen=True):
    """`to` is a member's name or public key, `#topic`, or `queue:NAME`."""

    to: str
    message: str
    priority: Priority = Priority.NEXT
    meta: dict[str, Any] | None = None
    reply_to_id: str | None = None
    client_message_id: str | None = None


class TopicPostBody(msgspec.Struct, frozen=True):
    topic: str
    message: str
    priority: Priority = Priority.NEXT
    meta: dict[str, Any] | None = None
    mentions: list[str] = []
    reply_to_id: str | None = None
    client_message_id: str | None = None


class BatchBody(msgspec.Struct, frozen=True):
    """Up to 1,000 sends. Each entry is read by itself, so that one that cannot be read fails alone."""

    sends: list[msgspec.Raw]


class SendAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    client_message_id: str
    status: str  # queued, inflight or accepted
    duplicate: bool = False
    broker_message_id: str | None = None
    history_id: int | None = None


class BatchAnswer(msgspec.Struct, frozen=True):
    """For each send, in order: its answer or its problem, with the `http_status` it would have had alone."""

    outcomes: list[dict[str, Any]]


_ERRORS: Final = (
    InvalidRequest,
    InvalidClientMessageId,
    IdempotencyConflict,
    PayloadTooLarge,
    UnknownDestination,
    StoreFull,
    StoreUnavailable,
)
_KEY: Final = Header(KEY_HEADER, "The id of the send; it wins over nothing: the body's must be absent or the same.")


def send_routes(parts: Parts) -> list[Route]:
    accepting, mint = parts.accepting, parts.world.ids.ulid

    async def send(request: Request) -> Response:
        return _respond(await accepting.accept(_parse_send(request.body, request.header(KEY_HEADER), mint)))

    async def post(request: Request) -> Response:
        return _respond(await accepting.accept(_parse_post(request.body, request.header(KEY_HEADER), mint)))

    async def batch(request: Request) -> Response:
        if request.header(KEY_HEADER) is not None:
            raise InvalidRequest("a batch has no id of its own: give each send its client_message_id")
        entries: list[msgspec.Raw] = request.body.sends
        if len(entries) > BATCH_MAX:
            raise InvalidRequest(f"a batch holds at most {BATCH_MAX} sends, not {len(entries)}")
        answers = await accepting.accept_many([_parse_entry(entry, mint) for entry in entries])
        return json_response(BatchAnswer([_render_outcome(answer) for answer in answers]))

    return [
        _one_send("/v1/send", send, SendBody, "a member, a topic or a queue"),
        _one_send("/v1/topic/post", post, TopicPostBody, "a topic"),
        Route(
            method="POST",
            path="/v1/send/batch",
            handler=batch,
            summary="Accept up to 1,000 messages in one commit, each with its own outcome.",
            request=BatchBody,
            response=BatchAnswer,
            errors=(InvalidRequest, PayloadTooLarge, StoreUnavailable),
            body_bytes_max=parts.settings.config.ipc.batch_bytes_max,
        ),
    ]


def _one_send(path: str, handler: Handler, body: type[msgspec.Struct], whom: str) -> Route:
    return Route(
        method="POST",
        path=path,
        handler=handler,
        summary=f"Accept a message for {whom}; answered when it is durable.",
        request=body,
        response=SendAnswer,
        status=202,
        statuses={200: "The same send was accepted by the broker before."},
        headers=(_KEY,),
        errors=_ERRORS,
    )


def _parse_send(body: SendBody, header: str | None, mint: Callable[[], str]) -> SendAsked:
    return SendAsked(
        client_message_id=derive_client_message_id(header, body.client_message_id, mint),
        to=body.to,
        body=body.message,
        reply_to=body.reply_to_id or "",
        priority=body.priority,
        meta=body.meta,
    )


def _parse_post(body: TopicPostBody, header: str | None, mint: Callable[[], str]) -> SendAsked:
    return SendAsked(
        client_message_id=derive_client_message_id(header, body.client_message_id, mint),
        to=TOPIC_MARK + body.topic,
        body=body.message,
        reply_to=body.reply_to_id or "",
        priority=body.priority,
        meta=fold_mentions(body.meta, body.mentions),
    )


def _parse_entry(entry: msgspec.Raw, mint: Callable[[], str]) -> SendAsked | MeshError:
    try:
        return _parse_send(msgspec.json.decode(entry, type=SendBody), None, mint)
    except (msgspec.DecodeError, RecursionError) as error:
        return InvalidRequest(str(error)[:300])
    except MeshError as error:
        return error


def _respond(answer: Answer) -> Response:
    return json_response(_shown(answer), answer.http_status)


def _shown(answer: Answer) -> SendAnswer:
    return SendAnswer(
        answer.client_message_id, answer.status, answer.duplicate, answer.broker_message_id, answer.history_id
    )


def _render_outcome(answer: Answer | MeshError) -> dict[str, Any]:
    if isinstance(answer, MeshError):
        return {"http_status": answer.status, **problem.render(answer)}
    return {"http_status": answer.http_status, **msgspec.to_builtins(_shown(answer))}
