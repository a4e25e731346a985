"""The ledger of the same home: steps by state, who holds them and until when, and their receipts. Only read."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from claudemesh.asgi.messages import Request, Response, json_response
from claudemesh.asgi.routes import Route
from claudemesh.dashboard.aside import Aside
from claudemesh.dashboard.fields import LIMIT_DEFAULT, NUMBER_MAX, Id, Limit, Number, clamp
from claudemesh.kernel.errors import DeadlineExceeded, DependencyError, MessageCassetteError, NotFound
from claudemesh.ledger import CassetteUnavailable, MessageCassette

Json = dict[str, Any]
T = TypeVar("T")

NO_COUNTS = {"PENDING": 0, "LEASED": 0, "COMMITTED": 0, "expired": 0}


class StepsQuery(msgspec.Struct, frozen=True):
    status: Literal["PENDING", "LEASED", "COMMITTED"] | None = None
    before: Number = NUMBER_MAX
    limit: Limit = LIMIT_DEFAULT


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first. `none`: nobody has posted anything here. `unusable`: `detail` says why."""

    state: Literal["none", "there", "unusable"]
    detail: str | None = None
    counts: dict[str, int] = msgspec.field(default_factory=lambda: dict(NO_COUNTS))
    steps: list[Json] = []
    next_before: int | None = None


class StepQuery(msgspec.Struct, frozen=True):
    id: Id


class ShownStep(msgspec.Struct, frozen=True):
    """`payload` and what the receipt says are whatever was posted."""

    step: Json
    payload: Any
    receipt: Json | None


class LedgerView:
    """The ledger's file, opened for each question, aside: other processes write to it, and may hold it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._aside = Aside("the ledger")

    async def page(self, query: StepsQuery) -> Steps:
        size = clamp(query.limit)

        def read(ledger: MessageCassette) -> tuple[Json, list[Json]]:
            found = ledger.newest_steps(query.status, before=query.before, limit=size + 1)
            return ledger.count_steps(), found

        if not self._path.exists():
            return Steps(state="none")
        try:
            counts, found = await self._ask(read)
        except (MessageCassetteError, DependencyError) as error:
            return Steps(state="unusable", detail=error.detail or error.title)
        page = found[:size]
        return Steps(
            state="there",
            counts=counts,
            steps=page,
            next_before=page[-1]["place"] if len(found) > size else None,
        )

    async def show(self, step_id: str) -> ShownStep:
        if not self._path.exists():
            raise NotFound("there is no such step: nobody has posted anything here")
        try:
            row = await self._ask(lambda ledger: ledger.show_step(step_id))
        except CassetteUnavailable as error:
            raise DependencyError(f"the ledger cannot be read: {error.detail}") from error
        except MessageCassetteError as error:
            raise NotFound(error.detail) from error
        payload, said, worker = row.pop("payload"), row.pop("receipt"), row.pop("receipt_worker")
        receipt = None
        if row["receipt_id"] is not None:
            receipt = {
                "receipt_id": row["receipt_id"],
                "worker_id": worker,
                "fencing_token": row["fencing_token"],
                "outcome": row["outcome"],
                "created_at": row["completed_at"],
                "receipt": _encodable(said),
            }
        return ShownStep(row, _encodable(payload), receipt)

    async def _ask(self, question: Callable[[MessageCassette], T]) -> T:
        def ask() -> T:
            with MessageCassette(db_path=self._path, create=False) as ledger:
                return question(ledger)

        return await self._aside.ask(ask)


def _encodable(value: object) -> object:
    """Return what was posted; as text, if it holds what Python reads and nobody writes: half a character."""
    try:
        msgspec.json.encode(value)
    except (ValueError, OverflowError, RecursionError):
        return json.dumps(value)
    return value


def ledger_routes(path: Path) -> list[Route]:
    view = LedgerView(path)

    async def steps(request: Request) -> Response:
        return json_response(await view.page(request.query))

    async def step(request: Request) -> Response:
        return json_response(await view.show(request.query.id))

    return [
        Route(
            method="GET",
            path="/v1/dashboard/ledger",
            handler=steps,
            summary="Steps of the ledger in this home, the newest first, and how many there are of each state.",
            query=StepsQuery,
            response=Steps,
        ),
        Route(
            method="GET",
            path="/v1/dashboard/ledger/step",
            handler=step,
            summary="One step, with what was asked and its receipt.",
            query=StepQuery,
            response=ShownStep,
            errors=(NotFound, DependencyError, DeadlineExceeded),
        ),
    ]
