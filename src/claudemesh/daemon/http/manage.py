"""What the daemon's owner may have it do: read its configuration again, and take a new local token."""

import msgspec

from claudemesh.asgi.messages import Request, Response, json_response
from claudemesh.asgi.routes import Route
from claudemesh.daemon.http.parts import Parts
from claudemesh.daemon.settings import Config
from claudemesh.kernel.errors import ConfigError, InvalidRequest
from claudemesh.runtime.settings import load


class Nothing(msgspec.Struct, frozen=True):
    """An empty object."""


class Reloaded(msgspec.Struct, frozen=True):
    applied: list[str]
    needs_restart: list[str]


class Rotated(msgspec.Struct, frozen=True):
    """The token itself is in the file, for its owner's eyes only."""

    file: str


def manage_routes(parts: Parts) -> list[Route]:
    async def reload(_: Request) -> Response:
        try:
            config = load(Config, parts.settings.state_dir / "config.toml")
            parts.receiving.terms.max_age(config.outbox)
        except ConfigError as error:  # the one in force stays
            raise InvalidRequest(str(error)) from error
        applied, needs_restart = parts.live.replace(config)
        await parts.pressure.look()
        return json_response(Reloaded(applied, needs_restart))

    async def rotate(_: Request) -> Response:
        parts.tokens.rotate()
        return json_response(Rotated(str(parts.settings.state_dir / "local_token")))

    return [
        Route(
            method="POST",
            path="/v1/reload",
            handler=reload,
            summary="Read the configuration again; the connection stays.",
            request=Nothing,
            response=Reloaded,
            errors=(InvalidRequest,),
        ),
        Route(
            method="POST",
            path="/v1/rotate-token",
            handler=rotate,
            summary="Make a new local token; the old one is good for a minute more.",
            request=Nothing,
            response=Rotated,
        ),
    ]
