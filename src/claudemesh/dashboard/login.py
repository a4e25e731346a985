"""How a page gets its bearer, and gives it back."""

from typing import Annotated

import msgspec

from claudemesh.asgi.messages import Request, Response, json_response
from claudemesh.asgi.routes import Route
from claudemesh.daemon.http.parts import Parts
from claudemesh.dashboard.door import bearer_of
from claudemesh.dashboard.events import DashboardOpened
from claudemesh.dashboard.files import ROOT
from claudemesh.dashboard.logins import CODE_MS, IDLE_MS, LIFE_MS, Logins
from claudemesh.kernel.errors import BadToken
from claudemesh.runtime.home import read_private

LOGIN = "/v1/dashboard/login"
CODE_CHARS_MAX = 256


class Nothing(msgspec.Struct, frozen=True):
    """An empty object."""


class Code(msgspec.Struct, frozen=True):
    """`url` is null where the daemon listens on no port: then no browser can reach it."""

    code: str
    url: str | None
    expires_in_s: int


class LoginBody(msgspec.Struct, frozen=True):
    code: Annotated[str, msgspec.Meta(min_length=1, max_length=CODE_CHARS_MAX)]


class LoggedIn(msgspec.Struct, frozen=True, kw_only=True):
    """The bearer is good for `idle_s` after each use, and for `ends_in_s` in all."""

    bearer: str
    idle_s: int
    ends_in_s: int
    mesh: str
    member: str
    version: str


class LoggedOut(msgspec.Struct, frozen=True):
    ended: bool


def login_routes(parts: Parts, logins: Logins) -> list[Route]:
    async def code(_: Request) -> Response:
        minted = logins.mint_code()
        return json_response(Code(minted, _link(parts, minted), CODE_MS // 1000))

    async def login(request: Request) -> Response:
        bearer = logins.trade(request.body.code)
        parts.world.observer.publish(DashboardOpened())
        joined = parts.identity.joined
        return json_response(
            LoggedIn(
                bearer=bearer,
                idle_s=IDLE_MS // 1000,
                ends_in_s=LIFE_MS // 1000,
                mesh=joined.slug,
                member=joined.name,
                version=parts.version,
            )
        )

    async def logout(request: Request) -> Response:
        return json_response(LoggedOut(logins.end(bearer_of(request.scope))))

    return [
        Route(
            method="POST",
            path="/v1/dashboard/code",
            handler=code,
            summary="Make a one-time code for the dashboard's link.",
            request=Nothing,
            response=Code,
        ),
        Route(
            method="POST",
            path=LOGIN,
            handler=login,
            summary="Trade a code for a short bearer; the page does so.",
            request=LoginBody,
            response=LoggedIn,
            errors=(BadToken,),
        ),
        Route(
            method="POST",
            path="/v1/dashboard/logout",
            handler=logout,
            summary="End the bearer that this is asked with.",
            request=Nothing,
            response=LoggedOut,
        ),
    ]


def _link(parts: Parts, code: str) -> str | None:
    if not parts.settings.tcp:
        return None
    port = int(read_private(parts.settings.state_dir / "http.port"))
    return f"http://127.0.0.1:{port}{ROOT}#{code}"
