"""The last messages that were read, as recipients get them: all recipients of a post ask at about one time."""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from claudemesh.broker.model import Delivery, Page, Parcel
from claudemesh.broker.stores.rows import Row
from claudemesh.kernel.fingerprint import Kind, Priority

RENDERED_BYTES_MAX: Final = 32 * 1024 * 1024


class Rendered:
    """Parcels by mesh and history id, up to a number of bytes. May be used by several threads."""

    def __init__(self, render: Callable[[Delivery], bytes]) -> None:
        self._render = render
        self._lock = threading.Lock()
        self._parcels: dict[tuple[int, int], Parcel] = {}
        self._bytes = 0

    def find(self, mesh_id: int, history_ids: Sequence[int]) -> dict[int, Parcel]:
        with self._lock:
            return {id_: parcel for id_ in history_ids if (parcel := self._parcels.get((mesh_id, id_)))}

    def add(self, mesh_id: int, rows: Iterable[Row]) -> dict[int, Parcel]:
        """Render what was read, and keep it."""
        fresh = {row[0]: self._parcel(row) for row in rows}
        self.keep(mesh_id, fresh.values())
        return fresh

    def keep(self, mesh_id: int, parcels: Iterable[Parcel]) -> None:
        with self._lock:
            for parcel in parcels:
                if (mesh_id, parcel.history_id) not in self._parcels:
                    self._parcels[mesh_id, parcel.history_id] = parcel
                    self._bytes += len(parcel.payload)
            while self._bytes > RENDERED_BYTES_MAX:
                oldest = next(iter(self._parcels))
                self._bytes -= len(self._parcels.pop(oldest).payload)

    def clear(self) -> None:
        """Forget all of it: ids may have come to stand for other messages."""
        with self._lock:
            self._parcels, self._bytes = {}, 0

    def _parcel(self, row: Row) -> Parcel:
        history_id, sender_id, broker_message_id, client_message_id, uid, pubkey, name, kind, *rest = row
        ref, body, accepted_at, reply_to, priority, meta, encoding, to_session = rest
        delivery = Delivery(
            history_id=history_id,
            broker_message_id=broker_message_id,
            client_message_id=client_message_id,
            sender_id=uid,
            sender_pubkey=pubkey,
            sender_name=name,
            kind=Kind(kind),
            ref=ref,
            body=body,
            accepted_at=accepted_at,
            reply_to=reply_to,
            priority=Priority(priority),
            meta=meta,
            encoding=encoding,
            to_session=to_session,
        )
        return Parcel(history_id, sender_id, client_message_id, self._render(delivery), to_session)


def cut(parcels: list[Parcel], bytes_max: int) -> list[Parcel]:
    """Return as many as fit, and at least one: a message that is larger than the room must go some time."""
    size = 0
    for number, parcel in enumerate(parcels):
        size += len(parcel.payload)
        if size > bytes_max and number:
            return parcels[:number]
    return parcels


def to_page(parcels: list[Parcel], bytes_max: int, looked_upto: int) -> Page:
    """Return as many as fit; what was looked at ends where it was cut."""
    kept = cut(parcels, bytes_max)
    return Page(kept, looked_upto if len(kept) == len(parcels) else kept[-1].history_id)
