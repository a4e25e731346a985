"""What the handlers work with, put together by `app`."""

from dataclasses import dataclass

from claudemesh.asgi.tokens import TokenFile
from claudemesh.daemon.connector import Connector
from claudemesh.daemon.feed import Feed
from claudemesh.daemon.identity import Identity
from claudemesh.daemon.marks import Marks
from claudemesh.daemon.metrics import DaemonMetrics
from claudemesh.daemon.operate import Operating
from claudemesh.daemon.ports import InboxStore, OutboxStore
from claudemesh.daemon.pressure import Pressure
from claudemesh.daemon.receive import Receiving
from claudemesh.daemon.service import Accepting
from claudemesh.daemon.sessions import Sessions
from claudemesh.daemon.settings import DaemonSettings, LiveConfig
from claudemesh.daemon.tracing import Tracing
from claudemesh.runtime.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    version: str
    settings: DaemonSettings
    live: LiveConfig
    tokens: TokenFile
    identity: Identity
    world: World
    metrics: DaemonMetrics
    pressure: Pressure
    outbox: OutboxStore
    inbox: InboxStore
    accepting: Accepting
    receiving: Receiving
    operating: Operating
    tracing: Tracing
    connector: Connector
    feed: Feed
    marks: Marks
    sessions: Sessions
    started_ms: int  # of the monotonic clock
