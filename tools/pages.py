"""The generated pages on the wire and on settings: one table for each struct, with what its docstring says."""

import inspect
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from unittest.mock import MagicMock

import msgspec

from claudemesh.asgi.routes import Route
from claudemesh.broker.calls import Args, Calls
from claudemesh.broker.http import broker_routes
from claudemesh.broker.settings import BrokerSettings
from claudemesh.broker.ws import PAUSE, Connection, PauseArgs
from claudemesh.daemon.http import daemon_routes
from claudemesh.daemon.http.extension import Extension
from claudemesh.daemon.settings import Config as DaemonConfig
from claudemesh.dashboard.app import dashboard_of
from claudemesh.edge.http import public_routes
from claudemesh.edge.operators import operator_routes
from claudemesh.edge.settings import EdgeSettings
from claudemesh.hub.http import hub_routes
from claudemesh.hub.settings import HubSettings
from claudemesh.runtime.home import Home
from claudemesh.runtime.settings import describe
from claudemesh.runtime.variables import VARIABLES
from claudemesh.wire import frames, negotiation, signing
from tools.made import MADE

PARTS = (
    frames.Attestation,
    frames.Feature,
    frames.SendItem,
    frames.Outcome,
    frames.DeliverItem,
    frames.ReceiptItem,
)


# What is signed, field by field, as `wire/signing.py` frames it.
SIGNED = {
    signing.WELCOME: "challenge, nonce",
    signing.HELLO: "nonce, protocol, meshId, memberPubkey, instanceId, timestampMs, sessionPubkey, resumeToken, "
    "the word `presence` if presenceOnly, session as JSON",
    signing.RESUME: "the payload of a resume token, in base64url: `{sub, mem, mid, exp, iat, jti, kid, att?}`",
    signing.ATTESTATION: "session_pubkey, parent_member_pubkey, expires_at",
    signing.MESH_CREATE: "slug, member_pubkey, name, timestamp_ms",
    signing.INVITE: "broker_url, mesh_id, slug, invite_id, uses, expires_at, broker_key, inviter_pubkey",
    signing.REDEEM: "invite_id, mesh_id, member_pubkey, name, timestamp_ms",
}


def protocol_page() -> Iterator[str]:
    yield from (
        MADE,
        "",
        "# The wire between daemon and broker",
        "",
        "One WebSocket at `/v1/ws`, JSON texts, told apart by `type`. The broker speaks first (`welcome`), the",
        "daemon answers with a signed `hello` and, without waiting, its `feature_negotiation_request`. A field",
        "that is left out has its default; one that is not listed here is passed over. `n` numbers the sends and",
        "calls of one connection.",
        "",
        "## To the broker",
        "",
    )
    for frame in get_args(frames.ToBroker):
        yield from _struct(frame, f"`{frame.__struct_config__.tag}`", "###")
    yield from ("## From the broker", "")
    for frame in get_args(frames.FromBroker):
        yield from _struct(frame, f"`{frame.__struct_config__.tag}`", "###")
    yield from ("## What they are made of", "")
    for part in PARTS:
        yield from _struct(part, part.__name__, "###")
    yield from _operations()
    yield from _signatures()
    yield from _closings()


def _operations() -> Iterator[str]:
    yield from (
        "## Operations of a call",
        "",
        "Any member may call them, where nothing else is said. An argument with a `?` may be left out.",
        "",
        "| `op` | `args` | |",
        "|---|---|---|",
    )
    nothing = MagicMock()
    table = Calls(nothing, nothing, nothing, nothing, nothing).operations
    for name, operation in table.items():
        said = _said(operation.handler) + (" Not for a session." if operation.governs else "")
        yield f"| `{name}` | {_arguments(operation.args)} | {said} |"
    yield from (f"| `{PAUSE}` | {_arguments(PauseArgs)} | {_said(Connection._pause)} |", "")  # noqa: SLF001  its words


def _arguments(args: type[Args]) -> str:
    fields = msgspec.structs.fields(args)
    return ", ".join(f"`{one.encode_name}{'' if one.required else '?'}`: {_type(one.type)}" for one in fields)


def _said(handler: object) -> str:
    return (inspect.getdoc(handler) or "").partition("\n")[0]


def _signatures() -> Iterator[str]:
    yield from (
        "## Signed bytes",
        "",
        "A signature is ed25519, in lower-case hex, over the purpose and the fields below: each as UTF-8 text,",
        "numbers in decimal, what is absent as an empty text, all joined by single zero bytes. A hello is signed",
        "with the session's key if it names one, else with the member's; a welcome with the broker's.",
        "",
        "| purpose | fields, in this order |",
        "|---|---|",
        *(f"| `{purpose}` | {fields} |" for purpose, fields in SIGNED.items()),
        "",
        "## Features",
        "",
        f"Required: {', '.join(f'`{name}`' for name in negotiation.REQUIRED)}.",
        f"Optional: {', '.join(f'`{name}`' for name in negotiation.OPTIONAL)}.",
        "",
    )


def _closings() -> Iterator[str]:
    yield from ("## Close codes", "", "| code | word |", "|---|---|")
    for code, word in frames.CLOSE_WORDS.items():
        yield f"| {code} | `{word}` |"
    yield from ("", f"With {frames.CLOSE_UNAUTHENTICATED} the reason stands for the word: `revoked`, for example.")


def http_page() -> Iterator[str]:
    """List the routes; the handlers are closures over parts that no request reaches here."""
    parts = MagicMock()
    parts.version = "0"
    yield from (
        MADE,
        "",
        "# HTTP",
        "",
        "Every server describes itself in full at `/openapi.json`. An error is `application/problem+json`; its",
        "codes are in [errors](errors.md).",
        "",
        "## The daemon",
        "",
        "On its Unix socket, and where TCP is enabled on 127.0.0.1 with `Authorization: Bearer` and the token of",
        "the file `local_token`.",
        "",
        *_routes(daemon_routes(parts, Extension())),
        "## The dashboard",
        "",
        "At the same places. A page has a bearer of its own, which opens what it reads and the few decisions",
        "below. Its files, and the trade of a code for a bearer, need none.",
        "",
        *_routes(dashboard_of(Home(Path("home")))(parts).routes),
        "## The broker",
        "",
        "Members speak to it over the [WebSocket](protocol.md); HTTP is for what comes before, and for operators.",
        "",
        *_routes(broker_routes(parts)),
        "## The hub",
        "",
        "On loopback; with a token file, and always beyond this machine, with `Authorization: Bearer` and its",
        "token. A row has `id`, `revision` (also as `ETag`), `created_at` and `updated_at` beside its own fields.",
        "",
        *_routes(hub_routes(parts)),
        "## The relay",
        "",
        "On a loopback port: its own addresses below, and everything else for the upstream, as the",
        "[routes of the relay](relay-routes.md) say.",
        "",
        *_routes(public_routes(parts)),
        "On its Unix socket `edge/sock`, for its owner: the same, and what waits.",
        "",
        *_routes(operator_routes(parts)),
    )


def _routes(routes: list[Route]) -> Iterator[str]:
    yield from ("| | | |", "|---|---|---|")
    for route in routes:
        yield f"| {route.method} | `{route.path}` | {route.summary} |"
    yield ""


def settings_page() -> Iterator[str]:
    yield from (
        MADE,
        "",
        "# Settings",
        "",
        "TOML files, and environment variables that overrule them. An unknown name is refused, and the nearest",
        "known one named. `claudemesh config show` says what is in force, and where each value came from.",
        "",
        "A setting's variable is made of its name, in capitals, with two underscores for the dot:",
        "`CLAUDEMESH_DISK__RESERVED_BYTES` is the daemon's `disk.reserved_bytes`. Daemon and broker have the",
        "prefix `CLAUDEMESH_`, the hub `CLAUDEMESH_HUB__` and the relay `CLAUDEMESH_EDGE__`. Where a variable of",
        "its own is listed, that one is heard first. Lists are set in files only. A flag of the command line wins",
        "over all.",
        "",
        "## The daemon: `config.toml` in its state directory",
        "",
        *_settings(DaemonConfig),
        "## The broker: `broker.toml` in `CLAUDEMESH_HOME`",
        "",
        *_settings(BrokerSettings),
        "## The hub: `hub.toml` in `CLAUDEMESH_HOME`",
        "",
        *_settings(HubSettings),
        "## The relay: `edge.toml` in `CLAUDEMESH_HOME`",
        "",
        *_settings(EdgeSettings),
        "## Variables of the environment",
        "",
        "Beside those made of the names above:",
        "",
        "| variable | meaning |",
        "|---|---|",
        *(f"| `{variable.name}` | {variable.help} |" for variable in VARIABLES),
    )


def _settings(struct: type[msgspec.Struct]) -> Iterator[str]:
    yield from ("| setting | type | default | meaning | variable of its own |", "|---|---|---|---|---|")
    for setting in describe(struct):
        kind = setting.type.replace("|", "\\|")
        own = f"`{setting.variable}`" if setting.variable else ""
        secret = " Never shown." if setting.is_secret else ""
        yield f"| `{setting.name}` | {kind} | `{setting.default}` | {setting.help}{secret} | {own} |"
    yield ""


def _struct(struct: type[msgspec.Struct], title: str, heading: str) -> Iterator[str]:
    yield from (f"{heading} {title}", "")
    said = inspect.cleandoc(struct.__doc__ or "")
    if said and not said.startswith(f"{struct.__name__}("):
        yield from (said, "")
    fields = msgspec.structs.fields(struct)
    if not fields:
        return
    yield from ("| field | type | default |", "|---|---|---|")
    for field in fields:
        default = "" if field.required else f"`{_default(field)}`"
        yield f"| `{field.encode_name}` | {_type(field.type)} | {default} |"
    yield ""


def _default(field: msgspec.structs.FieldInfo) -> str:
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return msgspec.json.encode(value).decode()


def _type(kind: Any) -> str:  # noqa: ANN401  an annotation may be anything
    if get_origin(kind) is Annotated:  # with bounds
        kind = get_args(kind)[0]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(_type(argument) for argument in arguments)
    if origin is Literal:
        return " or ".join(f"`{argument}`" for argument in arguments)
    if origin is list:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return "object"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(f"`{member.value}`" for member in kind)
    names = {
        str: "text",
        int: "whole number",
        bool: "true or false",
        NoneType: "null",
        Any: "anything",
        dict: "object",
    }
    return names.get(kind) or kind.__name__
