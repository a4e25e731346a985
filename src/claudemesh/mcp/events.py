"""What the server tells its log, on standard error: standard output is the protocol's alone."""

import traceback
from dataclasses import dataclass
from typing import ClassVar, Final

from claudemesh.runtime.observe import Level

FRAMES_MAX: Final = 6


def place_of(error: BaseException) -> tuple[str, ...]:
    """Return where it happened, without its words, which may be another's."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES_MAX:]
    return tuple(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames)


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
class SessionFailed:
    """What shows this process to the others failed as nobody expected, and begins anew. Told of as `CallFailed`."""

    name: ClassVar[str] = "mcp.session_failed"
    level: ClassVar[Level] = "error"
    error: str
    where: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CallFailed:
    """A tool, or a read, failed as nobody expected. Where is said, and of the error only its class."""

    name: ClassVar[str] = "mcp.call_failed"
    level: ClassVar[Level] = "error"
    tool: str
    error: str
    where: tuple[str, ...]
