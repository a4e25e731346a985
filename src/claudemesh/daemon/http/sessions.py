"""Sessions: processes that register here are shown to the other members, until they end or are gone."""

from typing import Annotated, Final

import msgspec

from claudemesh.asgi.messages import Request, Response, json_response
from claudemesh.asgi.routes import Route
from claudemesh.daemon.http.parts import Parts
from claudemesh.daemon.session import Session, Status
from claudemesh.daemon.sessions import Asked, parse_keys
from claudemesh.kernel.errors import InvalidRequest, NotFound, StateError, TooManySessions
from claudemesh.wire.frames import Attestation, SessionInfo
from claudemesh.wire.instants import render_instant

Hex64 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Token = Annotated[
    str,
    msgspec.Meta(pattern="^[!-~]{1,128}$", description="Chosen by the process: 1 to 128 visible ASCII characters."),
]

_CREATED: Final = 201


class SessionKeys(msgspec.Struct, frozen=True):
    """A key pair of the session's own, in hex; it stays in memory."""

    pubkey: Hex64
    seed: Hex64


class RegisterBody(SessionInfo, frozen=True, kw_only=True):
    token: Token
    pid: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1, description="With this process the session ends.")]
    session_keypair: SessionKeys | None = None
    parent_attestation: Attestation | None = None


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """`presence_id` is null until the broker has heard of it; `unread` counts the messages that named it."""

    session_pubkey: str
    presence_id: str | None
    status: Status
    unread: int


class EndedSession(msgspec.Struct, frozen=True):
    """`told`: the broker knows; else it is told on the next connection."""

    session_pubkey: str
    told: bool


class ShownSession(msgspec.Struct, frozen=True, kw_only=True):
    pubkey: str
    pid: int
    display_name: str
    status: Status
    since: str


class SessionList(msgspec.Struct, frozen=True):
    sessions: list[ShownSession]


def session_routes(parts: Parts) -> list[Route]:
    sessions = parts.sessions

    async def register(request: Request) -> Response:
        registered = await sessions.register(_asked(request.body))
        session = registered.session
        shown = Registered(
            session_pubkey=session.pubkey,
            presence_id=session.presence_id,
            status=session.status,
            unread=registered.unread,
        )
        return json_response(shown, _CREATED if registered.is_new else 200)

    async def end(request: Request) -> Response:
        session, told = await sessions.end(request.params["token"])
        return json_response(EndedSession(session.pubkey, told))

    async def show(_: Request) -> Response:
        return json_response(SessionList([_shown(session) for session in sessions]))

    return [
        Route(
            method="POST",
            path="/v1/sessions/register",
            handler=register,
            summary="Show a process to the other members as a session of this one; again, it is the same session.",
            request=RegisterBody,
            response=Registered,
            status=_CREATED,
            statuses={200: "It was registered with this token before"},
            errors=(InvalidRequest, StateError, TooManySessions),
        ),
        Route(
            method="DELETE",
            path="/v1/sessions/{token}",
            handler=end,
            summary="End a session, by its token or by `sha256:` and its hex digest (so if it has a slash).",
            response=EndedSession,
            errors=(NotFound,),
        ),
        Route(
            method="GET",
            path="/v1/sessions",
            handler=show,
            summary="The sessions that are registered here.",
            response=SessionList,
        ),
    ]


def _asked(body: RegisterBody) -> Asked:
    if not body.token.isprintable():  # to a pattern, a line break at the end is none
        raise InvalidRequest("token: 1 to 128 visible ASCII characters")
    given = body.session_keypair
    info = SessionInfo(
        display_name=body.display_name,
        role=body.role,
        cwd=body.cwd,
        groups=body.groups,
        topics=body.topics,
        mcp_servers=body.mcp_servers,
    )
    return Asked(
        token=body.token,
        pid=body.pid,
        info=info,
        keys=None if given is None else parse_keys(given.pubkey, given.seed),
        attestation=body.parent_attestation,
    )


def _shown(session: Session) -> ShownSession:
    return ShownSession(
        pubkey=session.pubkey,
        pid=session.said.process.pid,
        display_name=session.said.info.display_name,
        status=session.status,
        since=render_instant(session.since_ms),
    )
