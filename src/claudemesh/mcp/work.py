"""Work, from a queue of the mesh or from a ledger: claimed under a lease, completed under its fencing token.

A claim that crashed before it was kept is found again in a ledger, since its worker is named after the key. In a
queue nobody is named: the lease that was lost ends by itself, and the message comes back to whoever asks next. In
neither is anything done twice, because only the token of the newest lease completes it. To give back what was
given back before such a crash is refused (`lease_lost`): the lease is over, as it was meant to be.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from claudemesh.kernel.errors import (
    CassetteInvalid,
    CassetteUnavailable,
    InvalidRequest,
    LeaseLost,
    MessageCassetteError,
    NoPendingSteps,
)
from claudemesh.kernel.texts import escape
from claudemesh.mcp import arguments, results
from claudemesh.mcp.parts import Parts, show
from claudemesh.sdk import asks
from claudemesh.wire.json import dump_json
from claudemesh.wire.names import parse_topic

Json = dict[str, Any]
T = TypeVar("T")

LEDGER_MARK: Final = "ledger:"
OUTCOMES: Final = {"done": "SUCCESS", "failed": "FAILURE", "aborted": "ABORTED"}

LEASED: Final = "Leased to you, and not done: complete it with its id and token before the lease ends, or renew it."
LEASED_BEFORE: Final = (
    "Leased to you by an earlier call under this key, and by now perhaps done, or somebody else's: "
    "renew it (complete with outcome renew) before you go on, and leave it if that is refused."
)
NOTHING: Final = "There is nothing to do here now."

# What the ledger's law says of whoever does not hold the lease (any more).
_LOST: Final = ("Fencing token mismatch", "lease expired", "Wrong worker", "Step is not leased")


# --- claiming ------------------------------------------------------------------------------------------


async def claim(parts: Parts, asked: arguments.Claim) -> results.Claimed:
    place = await _place(parts, asked)

    async def take(key: str) -> results.Claimed:
        if place is None:
            held = await _take_of_queue(parts, asked)
        else:
            held = await _take_of_ledger(parts, asked, await parts.mark_of_home("claim", key, place))
        said = NOTHING if held is None else LEASED
        return results.Claimed(idempotency_key=key, replayed=False, source=asked.source, work=held, said=said)

    claimed = await parts.once("claim", asked, results.Claimed, take, place)
    return _show(claimed, asked)


def _show(claimed: results.Claimed, asked: arguments.Claim) -> results.Claimed:
    """Show a piece of what was claimed; the whole of it stands under the key, and can be read on.

    What was leased just now is shown from its beginning: a refusal would leave the lease with nobody told of it.
    """
    work = claimed.work
    if work is None:
        return claimed
    body = show(work.body, asked.body_from if claimed.replayed else 0, asked.body_chars)
    how = f'claim again with idempotency_key="{claimed.idempotency_key}" and body_from={body.following}'
    return replace(
        claimed,
        said=LEASED_BEFORE if claimed.replayed else claimed.said,
        work=replace(work, body=body.text, is_truncated=body.is_truncated),
        read_on=None if body.following is None else how,
    )


async def _take_of_queue(parts: Parts, asked: arguments.Claim) -> results.Work | None:
    leased: Json | None = await parts.daemon.ask(asks.work(_queue_of(asked.source)))
    if leased is None:
        return None
    return results.Work(
        id=leased["broker_message_id"],
        token=leased["lease_token"],
        worker_id=None,
        lease_expires_at=leased["lease_expires_at"],
        sender_name=escape(leased.get("from_name", "")),
        sender=leased["from"],
        message_id=leased["broker_message_id"],
        job_id=None,
        body=leased["body"],
        body_chars=len(leased["body"]),
        is_truncated=False,
    )


async def _take_of_ledger(parts: Parts, asked: arguments.Claim, worker_id: str) -> results.Work | None:
    run_id = asked.source.removeprefix(LEDGER_MARK)

    def take(ledger: Any) -> Json | None:  # noqa: ANN401 - loaded when it is opened
        held: Json | None = ledger.find_held(run_id, worker_id)
        if held is not None:
            return held
        ledger.requeue_expired(run_id)  # what others left behind
        try:
            claimed: Json = ledger.claim_step(run_id, worker_id, asked.ttl_s)
        except NoPendingSteps:
            return None
        return claimed

    step = await _at_ledger(parts, asked.ledger, take)
    if step is None:
        return None
    body = dump_json(step["payload"]).decode()
    return results.Work(
        id=step["step_id"],
        token=step["fencing_token"],
        worker_id=worker_id,
        lease_expires_at=step["lease_expires_at"],
        sender_name=None,
        sender=None,
        message_id=None,
        job_id=step["job_id"],
        body=body,
        body_chars=len(body),
        is_truncated=False,
    )


# --- completing ----------------------------------------------------------------------------------------


async def complete(parts: Parts, asked: arguments.Complete) -> results.Completed:
    place = await _place(parts, asked)

    async def settle(key: str) -> results.Completed:
        told = results.Completed(
            idempotency_key=key, replayed=False, source=asked.source, id=asked.id, outcome="done", said=""
        )
        return await (_complete_in_queue if place is None else _complete_in_ledger)(parts, asked, told)

    if asked.outcome == "renew":  # anew each time: of an answer that was kept, the lease may be over
        return await settle(asked.idempotency_key or parts.mint())
    return await parts.once("complete", asked, results.Completed, settle, place)


async def _complete_in_queue(parts: Parts, asked: arguments.Complete, told: results.Completed) -> results.Completed:
    """Settle a queue's message. An ack that is said again holds again; who lost the lease is told so."""
    held = (_queue_of(asked.source), asked.id, asked.token)
    match asked.outcome:
        case "done":
            await parts.daemon.ask(asks.ack(*held))
            return replace(told, said="Done: nobody else gets it, and its sender sees it as acted.")
        case "give_back":
            await parts.daemon.ask(asks.nack(*held))
            return replace(
                told, outcome="given_back", said="Given back: it is not done, and the next worker gets it."
            )
        case "renew":
            lease: Json = await parts.daemon.ask(asks.renew(*held))
            return _renewed(told, lease["lease_expires_at"])
        case _:
            raise InvalidRequest(f"a queue knows no {asked.outcome!r}: done, give_back or renew")


async def _complete_in_ledger(
    parts: Parts, asked: arguments.Complete, told: results.Completed
) -> results.Completed:
    """Settle a ledger's step. A receipt that this worker wrote before is found, and not written twice."""
    if asked.worker_id is None:
        raise InvalidRequest("a ledger's step is completed with the worker_id that claim told")
    held = (asked.source.removeprefix(LEDGER_MARK), asked.id, asked.worker_id, asked.token)
    if asked.outcome == "renew":
        until = await _at_ledger(
            parts, asked.ledger, lambda ledger: _fenced(ledger.renew_lease, *held, asked.ttl_s)
        )
        return _renewed(told, str(until))
    outcome = OUTCOMES.get(asked.outcome)
    if outcome is None:
        raise InvalidRequest("a ledger's step is not given back: its lease ends, or it is failed or aborted")
    receipt_id, is_ours = await _at_ledger(
        parts, asked.ledger, lambda ledger: _receipt(ledger, held, asked.result, outcome)
    )
    said = f"{asked.outcome}: the receipt is written, and the step is committed."
    return replace(told, outcome=asked.outcome, said=said, receipt_id=receipt_id, replayed=is_ours)


def _receipt(ledger: Any, held: tuple[str, str, str, int], result: object, outcome: str) -> tuple[str, bool]:  # noqa: ANN401
    """Write the receipt; return its id, and whether it stood there already."""
    run_id, step_id, worker_id, token = held
    try:
        receipt_id: str = _fenced(ledger.complete_step, *held, result, outcome)
    except LeaseLost:
        standing: Json | None = ledger.find_receipt(run_id, step_id)
        said = (worker_id, token, outcome, result)
        if standing is None or said != tuple(
            standing[name] for name in ("worker_id", "fencing_token", "outcome", "receipt")
        ):
            raise
        return str(standing["receipt_id"]), True
    return receipt_id, False


def _fenced(act: Callable[..., T], *held: object) -> T:
    """Act under a lease; LeaseLost, in the ledger's words, if it is not held (any more)."""
    try:
        return act(*held)
    except (CassetteInvalid, CassetteUnavailable):
        raise
    except MessageCassetteError as error:
        if any(word in error.detail for word in _LOST):
            raise LeaseLost(error.detail) from error
        raise


def _renewed(told: results.Completed, until: str) -> results.Completed:
    said = "Renewed: the work is still yours, and not done."
    return replace(told, outcome="renewed", said=said, lease_expires_at=until)


# --- where the work is ---------------------------------------------------------------------------------


async def _place(parts: Parts, asked: arguments.Claim | arguments.Complete) -> str | None:
    """Return which ledger is meant, wherever its file is and however that is written; None for a queue."""
    if not asked.source.startswith(LEDGER_MARK):
        return None
    ledger_id = await _at_ledger(parts, asked.ledger, lambda ledger: ledger.read_id())
    return f"{LEDGER_MARK}{ledger_id}"


def _queue_of(source: str) -> str:
    return parse_topic(asks.queue_name(source))


def _at_ledger(parts: Parts, path: str | None, ask: Callable[[Any], T]) -> Awaitable[T]:
    """Ask a ledger that is there; opened for each question, as other processes use it too."""
    try:
        place = parts.home.ledger_db if path is None else Path(path).expanduser()
    except RuntimeError as error:
        raise InvalidRequest(f"ledger: there is no such user's home: {escape(path or '')}") from error

    def run() -> T:
        from claudemesh.ledger import MessageCassette  # noqa: PLC0415 - for whoever uses one

        with MessageCassette(db_path=place, create=False) as ledger:
            return ask(ledger)

    return asyncio.to_thread(run)
