"""What is served beside the daemon's own surface. Who extends the daemon knows it; the daemon knows nobody.

An extension has routes, paths that need no token, tokens of its own, and a door: it stands behind the guard of the
port and before all routes, so that it can say what its own tokens are good for.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from claudemesh.asgi.messages import App
from claudemesh.asgi.routes import Route
from claudemesh.asgi.tokens import TokenSource
from claudemesh.daemon.http.parts import Parts


class _NoTokens:
    def identify(self, presented: bytes) -> str | None:  # noqa: ARG002 - as the protocol has it
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    routes: list[Route] = field(default_factory=list)
    public_paths: frozenset[str] = frozenset()
    tokens: TokenSource = field(default_factory=_NoTokens)
    door: Callable[[App], App] = lambda app: app


Extend: TypeAlias = Callable[[Parts], Extension]


def extend_by_nothing(_: Parts) -> Extension:
    return Extension()
