"""What the server tells its log, on standard error: standard output is the protocol's alone."""

from dataclasses import dataclass
from typing import ClassVar

from claudemesh.runtime.observe import Level


@dataclass(frozen=True, slots=True)
class SessionShown:
    """The daemon shows this process to the others."""

    name: ClassVar[str] = "mcp.session_shown"
    session_pubkey: str


@dataclass(frozen=True, slots=True)
class SessionNotShown:
    """It does not, for now."""

    name: ClassVar[str] = "mcp.session_not_shown"
    level: ClassVar[Level] = "warning"
    reason: str


@dataclass(frozen=True, slots=True)
class CallFailed:
    """A tool, or a read, failed as nobody expected. Where is said, and of the error only its class."""

    name: ClassVar[str] = "mcp.call_failed"
    level: ClassVar[Level] = "error"
    tool: str
    error: str
    where: tuple[str, ...]
