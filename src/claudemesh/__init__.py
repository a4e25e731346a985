"""Durable, idempotent messages and work between agents and services on many machines.

    from claudemesh import Mesh

    with Mesh() as mesh:
        mesh.send("bob", "the build is green").wait("delivered")

Importing any part of the package runs this file first, so it stays light: the public names are loaded on first use.
All errors are in `claudemesh.errors`.
"""

TYPE_CHECKING = False  # as typing's, which would take longer to import than all of this
if TYPE_CHECKING:
    from claudemesh.kernel import errors
    from claudemesh.kernel.errors import MeshError
    from claudemesh.sdk.async_mesh import (
        AsyncEvent,
        AsyncMesh,
        AsyncMessage,
        AsyncQueue,
        AsyncReceipt,
        AsyncSession,
        AsyncTopic,
        AsyncWork,
    )
    from claudemesh.sdk.mesh import Event, Mesh, Message, Queue, Receipt, Session, Topic, Work
    from claudemesh.sdk.values import Draft, Health, Peer, PeerSession, Step, TopicInfo, Trace

__all__ = [
    "AsyncEvent",
    "AsyncMesh",
    "AsyncMessage",
    "AsyncQueue",
    "AsyncReceipt",
    "AsyncSession",
    "AsyncTopic",
    "AsyncWork",
    "Draft",
    "Event",
    "Health",
    "Mesh",
    "MeshError",
    "Message",
    "Peer",
    "PeerSession",
    "Queue",
    "Receipt",
    "Session",
    "Step",
    "Topic",
    "TopicInfo",
    "Trace",
    "Work",
    "errors",
]

if not TYPE_CHECKING:  # a type checker would take it for a promise of every name there is

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415 - only for the first use of a name

        module = import_module(_home(name))
        found = globals()[name] = module if name == "errors" else getattr(module, name)
        return found


def _home(name: str) -> str:
    if name in {"errors", "MeshError"}:
        return "claudemesh.kernel.errors"
    if name in {"Draft", "Health", "Peer", "PeerSession", "Step", "TopicInfo", "Trace"}:
        return "claudemesh.sdk.values"
    return "claudemesh.sdk.async_mesh" if name.startswith("Async") else "claudemesh.sdk.mesh"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
