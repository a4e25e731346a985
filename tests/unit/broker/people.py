"""Connections that write down what is asked of them, and a line to other brokers that writes down what is told."""

from collections.abc import Callable, Sequence
from typing import Any

from claudemesh.broker.model import Bulletin, ConnectionPolicy, Identity, Member, Mesh, Parcel, Role, Seat
from claudemesh.wire.frames import Event, parse_from_broker

Call = tuple[Any, ...]


def identity(
    number: int,
    session: str | None = None,
    *,
    instance: str = "instance",
    policy: ConnectionPolicy = ConnectionPolicy.PREFER_NEWEST,
    is_presence_only: bool = False,
) -> Identity:
    member = Member(
        id=number,
        uid=f"u{number}",
        mesh_id=1,
        pubkey=f"k{number}",
        name=f"n{number}",
        role=Role.MEMBER,
        joined_at=0,
    )
    mesh = Mesh(id=1, uid="m", slug="demo", policy=policy)
    return Identity(mesh, member, instance, session, is_presence_only=is_presence_only)


class Visitor:
    """A connection, with every call that was made."""

    def __init__(self, who: Identity, token: int) -> None:
        self.identity = who
        self.seat = Seat(who.sender, who.session_pubkey, token)
        self.calls: list[Call] = []
        self.is_active = False

    def close(self, code: int, reason: str) -> None:
        self.calls.append(("close", code, reason))

    def wake(self) -> None:
        self.calls.append(("wake",))

    def offer(self, parcel: Parcel) -> None:
        self.calls.append(("offer", parcel.history_id))

    def set_active(self, active: bool) -> None:  # noqa: FBT001  as the port has it
        self.is_active = active

    def rewind(self) -> None:
        self.calls.append(("rewind",))

    def tell(self, text: str) -> None:
        event = parse_from_broker(text)
        assert isinstance(event, Event)
        self.calls.append(("tell", event.name, event.data))

    def hint(self, client_message_ids: Sequence[str]) -> None:
        self.calls.append(("hint", *client_message_ids))


class Line:
    """A bus to others that may be there."""

    def __init__(self, *, is_alone: bool = False) -> None:
        self.is_alone = is_alone
        self.told: list[Bulletin] = []

    def publish(self, bulletin: Bulletin) -> None:
        self.told.append(bulletin)

    def listen(self, heard: Callable[[Bulletin], None], missed: Callable[[], None]) -> None:
        raise NotImplementedError
