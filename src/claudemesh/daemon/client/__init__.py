"""The one client of a daemon, for the command line, the SDK, the MCP server and the dashboard.

It speaks HTTP/1.1 on the daemon's socket by itself, because importing a library for that takes longer than most
commands do: `http1` is the protocol without IO, `connection` the socket, and here is what can be asked.

An error of the daemon arrives as the class it was. A send has its id before the first try, and is tried again under
that id alone while there is time; anything else whose answer was lost is for the caller to look into.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, Self

from claudemesh.daemon.client.connection import Connections, EventStream
from claudemesh.daemon.client.http1 import Json, Query, StreamEvent, quote, render_request
from claudemesh.daemon.client.recording import Recorder, unrecorded
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import ConnectionLost, Extra, MeshError, NoDaemon, StoreFull
from claudemesh.kernel.ids import parse_client_message_id
from claudemesh.kernel.retry import derive_backoff_ms
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.dice import roll
from claudemesh.runtime.ids import UlidSource
from claudemesh.runtime.processes import pause

__all__ = ["Client", "EventStream", "StreamEvent", "mint_id"]

TIMEOUT_S: Final = 30.0
TOPIC_MARK: Final = "#"


@cache
def _ulids() -> UlidSource:
    return UlidSource(SystemClock())


def mint_id() -> str:
    return _ulids().ulid()


class Client:
    """Asks a daemon; for one thread at a time.

    `sock` is the state directory's name for the socket: the socket itself, or a file that holds its path. Methods
    return the daemon's answer as it is, and raise its errors.
    """

    def __init__(  # noqa: PLR0913 - all by name
        self,
        sock: Path,
        timeout_s: float = TIMEOUT_S,
        *,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = pause,
        jitter: Callable[[], float] = roll,
        recorder: Recorder | None = None,
    ) -> None:
        self._timeout_ms = int(timeout_s * 1000)
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self._jitter = jitter
        self._record = recorder.call if recorder else unrecorded
        self._connections = Connections(sock, self._clock, sleep)

    def close(self) -> None:
        self._connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Ask once, and return status and answer; only what just reads is asked again if the connection ended."""
        request, deadline_ms = render_request(method, path, body, query, headers), self._deadline_ms()
        for may_repeat in (method == "GET", False):
            try:
                with self._record(path, body) as told:
                    status, answer = self._connections.exchange(request, deadline_ms)
                    told(answer)
            except ConnectionLost:
                if not may_repeat:
                    raise
            else:
                break
        return status, answer

    def stream(self, path: str = "/v1/events", last_event_id: str = "") -> EventStream:
        """Open a stream of events as they happen; after an id, also of what was missed since."""
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_event_id} if last_event_id else {})
        return self._connections.stream(render_request("GET", path, headers=headers), self._deadline_ms())

    # --- sending ---

    def send(  # noqa: PLR0913 - a send's own fields, all by name
        self,
        to: str,
        message: str,
        *,
        priority: str | None = None,
        meta: Json | None = None,
        reply_to_id: str | None = None,
        client_message_id: str | None = None,
    ) -> Json:
        """Send to a member's name or key, to `queue:NAME`, or to `#topic`."""
        if to.startswith(TOPIC_MARK):
            path, where = "/v1/topic/post", {"topic": to.removeprefix(TOPIC_MARK)}
        else:
            path, where = "/v1/send", {"to": to}
        more = {"priority": priority, "meta": meta, "reply_to_id": reply_to_id}
        given = {name: value for name, value in more.items() if value is not None}
        chosen = mint_id() if client_message_id is None else parse_client_message_id(client_message_id)
        body = {**where, "message": message, **given, "client_message_id": chosen}
        return self._until_answered(path, body, client_message_id=chosen)

    def send_batch(self, sends: Sequence[Json]) -> Json:
        """Send up to 1,000 messages, each a dict of send's fields; each has its own id and its own outcome."""
        items = [{**one, "client_message_id": one.get("client_message_id") or mint_id()} for one in sends]
        return self._until_answered("/v1/send/batch", {"sends": items})

    def _until_answered(self, path: str, body: Json, **named: Extra) -> Json:
        """Ask until there is an answer or no time. The ids are in the body, so all tries together count once."""
        deadline_ms = self._deadline_ms()
        request = render_request("POST", path, body)
        attempts = 0
        unknown: MeshError | None = None
        while True:
            try:
                with self._record(path, body) as told:
                    answer: Json = self._connections.exchange(request, deadline_ms)[1]
                    told(answer)
            except MeshError as error:
                error.extras = {**named, **error.extras}
                if error.retry != "no" and not isinstance(error, StoreFull):
                    unknown = error
                elif unknown is None or not isinstance(error, NoDaemon):  # else it may just be coming back
                    raise
                attempts += 1
                after_ms = error.extras.get("retry_after_ms")
                wait_ms = derive_backoff_ms(
                    attempts, self._jitter(), after_ms if isinstance(after_ms, int) else None
                )
                if self._clock.monotonic_ms() + wait_ms >= deadline_ms:
                    raise unknown from error
                self._sleep(wait_ms / 1000)
            else:
                return answer

    # --- reading ---

    def inbox(  # noqa: PLR0913 - the filters, all by name
        self,
        *,
        since: str | None = None,
        topic: str | None = None,
        sender: str | None = None,
        mentions_me: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Json:
        query: Query = {
            "since": since,
            "topic": topic,
            "from": sender,
            "mentions": "me" if mentions_me else None,
            "limit": limit,
            "cursor": cursor,
        }
        return self._get("/v1/inbox", query)

    def inbox_search(self, words: str, *, limit: int | None = None, cursor: str | None = None) -> Json:
        return self._get("/v1/inbox/search", {"q": words, "limit": limit, "cursor": cursor})

    def inbox_read(self, ids: Sequence[str] | None = None, *, upto: str | None = None) -> Json:
        """Mark messages as read: these, or all up to a cursor of the unfiltered inbox."""
        return self._post("/v1/inbox/read", {"upto": upto} if ids is None else {"ids": list(ids)})

    def peers(self, *, every: bool = False) -> Json:
        return self._get("/v1/peers", {"all": every})

    def trace(self, any_id: str) -> Json:
        return self._get(f"/v1/trace/{quote(any_id)}")

    # --- the outbox ---

    def outbox_list(self, *, failed: bool = False, limit: int | None = None, cursor: str | None = None) -> Json:
        return self._get("/v1/outbox", {"failed": failed, "limit": limit, "cursor": cursor})

    def outbox_inspect(self, row: str) -> Json:
        return self._get(f"/v1/outbox/{quote(row)}")

    def outbox_requeue(
        self, row: str, *, new_client_id: str | None = None, patch: Json | None = None, force: bool = False
    ) -> Json:
        """Give a row up for a new one. The new id is chosen here, so that asking twice makes one message."""
        body: Json = {"id": row, "new_client_id": new_client_id or mint_id()}
        body |= ({"patch": patch} if patch is not None else {}) | ({"force": True} if force else {})
        return self._post("/v1/outbox/requeue", body)

    def outbox_drop(self, row: str, *, force: bool = False) -> Json:
        return self._post("/v1/outbox/drop", {"id": row} | ({"force": True} if force else {}))

    def outbox_prune(self) -> Json:
        return self._post("/v1/outbox/prune", {"confirm": True})

    # --- topics and queues ---

    def topic_create(self, topic: str) -> Json:
        return self._post("/v1/topic/create", {"topic": topic})

    def topic_subscribe(self, topic: str) -> Json:
        return self._post("/v1/topic/subscribe", {"topic": topic})

    def topic_unsubscribe(self, topic: str) -> Json:
        return self._post("/v1/topic/unsubscribe", {"topic": topic})

    def topic_list(self) -> Json:
        return self._get("/v1/topic/list")

    def queue_list(self) -> Json:
        return self._get("/v1/queue/list")

    def queue_create(self, queue: str) -> Json:
        return self._post("/v1/queue/create", {"queue": queue})

    def queue_work(self, queue: str) -> Json | None:
        """Lease one message; None if there is none."""
        answer: Json | None = self.request("POST", "/v1/queue/work", {"queue": queue})[1]
        return answer

    def queue_ack(self, queue: str, broker_message_id: str, token: int, *, handed_over: bool = False) -> Json:
        """Say that work is done; or that a ledger has it, and then a reply to it says that it is done."""
        more = {"handed_over": True} if handed_over else {}
        return self._settle("ack", queue, broker_message_id, token, **more)

    def queue_nack(self, queue: str, broker_message_id: str, token: int) -> Json:
        return self._settle("nack", queue, broker_message_id, token)

    def queue_renew(self, queue: str, broker_message_id: str, token: int) -> Json:
        return self._settle("renew", queue, broker_message_id, token)

    def _settle(self, verb: str, queue: str, broker_message_id: str, token: int, **more: bool) -> Json:
        return self._post(f"/v1/queue/{verb}", {"queue": queue, "id": broker_message_id, "token": token, **more})

    # --- the mesh ---

    def member_revoke(self, member: str) -> Json:
        return self._post("/v1/member/revoke", {"member": member})

    def member_role(self, member: str, role: str) -> Json:
        return self._post("/v1/member/role", {"member": member, "role": role})

    def presence_end(self) -> Json:
        """Leave at once in the eyes of the others, without waiting for the lease to end."""
        return self._post("/v1/presence/end", {})

    def mesh_set(self, **changes: str | int) -> Json:
        return self._post("/v1/mesh/set", changes)

    # --- the daemon itself ---

    def health(self) -> Json:
        return self._get("/v1/health")

    def version(self) -> Json:
        return self._get("/v1/version")

    def metrics(self) -> str:
        """Return the metrics as Prometheus reads them."""
        text: str = self.request("GET", "/v1/metrics")[1]
        return text

    def _get(self, path: str, query: Query | None = None) -> Json:
        answer: Json = self.request("GET", path, None, query)[1]
        return answer

    def _post(self, path: str, body: Json) -> Json:
        answer: Json = self.request("POST", path, body)[1]
        return answer

    def _deadline_ms(self) -> int:
        return self._clock.monotonic_ms() + self._timeout_ms
