"""How somebody becomes a member: a key, a signed request, the broker's yes, and only then an identity on disk.

The answer may be lost on its way. So the key is kept in a pending file before it is shown to the broker, and the
same request made again brings the same key: the broker answers as it did, and nobody is a member twice.

An invite code comes from somebody else. Nothing in it is believed further than its words reach: the broker it names
must be one that we would also accept from our own user, and must then answer for the mesh that the code was for.
"""

import http.client
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from claudemesh.daemon import identity
from claudemesh.daemon.identity import Joined
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import BrokerUnreachable, ConfigError, InvalidRequest, MeshError
from claudemesh.runtime.home import Home
from claudemesh.runtime.keys import KeyPair, is_pubkey, verify
from claudemesh.runtime.processes import pause
from claudemesh.wire import problem
from claudemesh.wire.addresses import explain_distrust, is_loopback, parse_broker_url
from claudemesh.wire.invite import CreateMesh, Invite, Membership, Redeem
from claudemesh.wire.names import parse_member_name, parse_slug
from claudemesh.wire.signing import create_mesh_bytes, invite_bytes, redeem_bytes

TIMEOUT_S: Final = 30.0
ANSWER_BYTES_MAX: Final = 1 << 20
WAITS_S: Final = (0.1, 0.2, 0.3, 0.4, 1.0, 1.0, 1.0, 1.0)  # for a broker that is just being started
QUIET_WAITS: Final = 4  # a second in all

INVITERS: Final = frozenset({"owner", "admin"})

PENDING_KEYS: Final = "keypair.pending.json"

_ERROR: Final = 400
_PROXYS_OWN: Final = frozenset({429, 502, 503, 504})  # also said, without a problem, for a broker that is behind it


# --- becoming a member -------------------------------------------------------------------------------


class Enrolment(NamedTuple):
    """What it takes: where things are kept, by what name, and what time it is."""

    home: Home
    name: str
    clock: Clock


def create(to: Enrolment, slug: str, broker_url: str, admin_token: str | None = None) -> Joined:
    """Make a mesh, whose owner we become; asked again it answers as it did."""
    slug, broker_url, name = parse_slug(slug), parse_broker_url(broker_url), parse_member_name(to.name)
    standing = _standing(to.home, slug)
    if standing is not None and standing.broker_url != broker_url:
        raise ConfigError(f"you are in a mesh {slug!r} of {standing.broker_url} already: leave it first")
    keys = _keys(to.home, slug, is_member=standing is not None)
    request = CreateMesh(
        slug=slug, member_pubkey=keys.pubkey, name=name, timestamp_ms=to.clock.wall_ms(), signature=""
    )
    request = msgspec.structs.replace(request, signature=keys.sign(create_mesh_bytes(request)))
    membership = _ask(broker_url, "/v1/meshes", request, admin_token)
    if membership.slug != slug or not is_pubkey(membership.broker_key):
        raise ConfigError(f"{broker_url} answered for another mesh than {slug!r}, or without a key of its own")
    return _settle(to.home, keys, membership, broker_url)


def join(to: Enrolment, invite: Invite) -> Joined:
    """Become a member by an invite; asked again it answers as it did."""
    slug, broker_url, name = (
        parse_slug(invite.slug),
        parse_broker_url(invite.broker_url),
        parse_member_name(to.name),
    )
    _check_signature(invite)
    standing = _standing(to.home, slug)
    if standing is not None and standing.mesh_id != invite.mesh_id:
        raise ConfigError(f"you are in another mesh that is called {slug!r} already: leave it first")
    if standing is not None and (standing.broker_key, standing.broker_url) != (invite.broker_key, broker_url):
        raise ConfigError("you are in this mesh already, and the code names another broker: nothing was changed")
    keys = _keys(to.home, slug, is_member=standing is not None)
    request = redeem_request(keys, invite, name, to.clock.wall_ms())
    membership = _ask(broker_url, "/v1/invites/redeem", request)
    _compare(membership, invite)
    return _settle(to.home, keys, membership, broker_url)


def rejoin(state_dir: Path, invite: Invite, name: str, clock: Clock) -> tuple[KeyPair, Joined]:
    """Become a second member, for a copied state directory; whoever calls puts it there, with `settle_rejoined`."""
    _check_signature(invite)
    broker_url = parse_broker_url(invite.broker_url)
    keys = _kept_keys(state_dir / PENDING_KEYS)
    request = redeem_request(keys, invite, parse_member_name(name), clock.wall_ms())
    membership = _ask(broker_url, "/v1/invites/redeem", request)
    _compare(membership, invite)
    return keys, _joined(membership, broker_url)


def _check_signature(invite: Invite) -> None:
    """Refuse a code that nobody signed. Whether the signer may invite is for the broker to say."""
    try:
        is_signed = verify(invite.inviter_pubkey, invite_bytes(invite), invite.signature)
    except ValueError:  # a NUL in a field
        is_signed = False
    if not is_signed:
        raise InvalidRequest("the code is not signed by whoever it says made it: ask for a new one")


def settle_rejoined(state_dir: Path, keys: KeyPair, joined: Joined) -> None:
    identity.store(state_dir, keys, joined)
    (state_dir / PENDING_KEYS).unlink()


def make_invite(joined: Joined, keys: KeyPair, invite_id: str, uses: int, expires_at: int) -> Invite:
    """Make an invite without asking anybody: the broker judges it when it is redeemed."""
    invite = Invite(
        broker_url=joined.broker_url,
        mesh_id=joined.mesh_id,
        slug=joined.slug,
        invite_id=invite_id,
        uses=uses,
        expires_at=expires_at,
        broker_key=joined.broker_key,
        inviter_pubkey=keys.pubkey,
    )
    return msgspec.structs.replace(invite, signature=keys.sign(invite_bytes(invite)))


def redeem_request(keys: KeyPair, invite: Invite, name: str, wall_ms: int) -> Redeem:
    request = Redeem(invite=invite, member_pubkey=keys.pubkey, name=name, timestamp_ms=wall_ms, signature="")
    return msgspec.structs.replace(request, signature=keys.sign(redeem_bytes(request)))


def _standing(home: Home, slug: str) -> Joined | None:
    return identity.load_membership(home.mesh_dir(slug)) if slug in home.meshes() else None


def _keys(home: Home, slug: str, *, is_member: bool) -> KeyPair:
    """Return the member's keys, those of a request whose answer was lost, or new ones, kept before their use."""
    if is_member:
        return identity.load_keys(home.mesh_dir(slug))
    home.ensure_dir(home.pending_file(slug).parent)
    return _kept_keys(home.pending_file(slug))


def _kept_keys(path: Path) -> KeyPair:
    if not path.exists():
        identity.write_keys(path, KeyPair.generate())
    return identity.read_keys(path)


def _compare(membership: Membership, invite: Invite) -> None:
    told = (membership.mesh_id, membership.slug, membership.broker_key)
    if told != (invite.mesh_id, invite.slug, invite.broker_key):
        raise ConfigError(
            "the broker answered for another mesh than the code is for, or is another broker: ask for a new code"
        )


def _joined(membership: Membership, broker_url: str) -> Joined:
    return Joined(**msgspec.structs.asdict(membership), broker_url=broker_url)


def _settle(home: Home, keys: KeyPair, membership: Membership, broker_url: str) -> Joined:
    joined = _joined(membership, broker_url)
    identity.store(home.ensure_dir(home.mesh_dir(joined.slug)), keys, joined)
    home.pending_file(joined.slug).unlink(missing_ok=True)
    return joined


# --- asking a broker ---------------------------------------------------------------------------------


def _ask(broker_url: str, path: str, request: CreateMesh | Redeem, admin_token: str | None = None) -> Membership:
    headers = {"Content-Type": "application/json"}
    if admin_token is not None:
        headers["Authorization"] = f"Bearer {admin_token}"
    status, content = exchange(broker_url, path, msgspec.json.encode(request), headers)
    if status >= _ERROR:
        raise _refusal(broker_url, status, content)
    try:
        return msgspec.json.decode(content, type=Membership)
    except msgspec.DecodeError as error:
        raise _not_a_broker(broker_url, status) from error


def patiently(say: Callable[[str], None], broker_url: str, ask: Callable[[], Joined]) -> Joined:
    """Ask again for a while if this machine refuses: a broker that was started a moment ago will listen in another.

    Elsewhere a refusal is news, and is told at once.
    """
    for number, wait_s in enumerate(WAITS_S):
        try:
            return ask()
        except BrokerUnreachable as error:
            is_refused = isinstance(error.__cause__, ConnectionRefusedError)
            if not is_refused or not is_loopback(urlsplit(broker_url).hostname or ""):
                raise
        if number == QUIET_WAITS:
            say(f"nothing listens at {broker_url} yet; waiting for it")
        pause(wait_s)
    return ask()


def exchange(
    broker_url: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> tuple[int, bytes]:
    """Ask a broker once, itself and nobody it might send us to: no proxy, no redirect."""
    parts = urlsplit(broker_url)
    host = parts.hostname or ""
    connection = (
        http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=ssl.create_default_context())
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
    )
    try:
        connection.request("GET" if body is None else "POST", parts.path + path, body, dict(headers or {}))
        response = connection.getresponse()
        return response.status, response.read(ANSWER_BYTES_MAX)
    except ssl.SSLCertVerificationError as error:
        raise BrokerUnreachable(f"{broker_url}: {explain_distrust(error)}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or repr(error)
        raise BrokerUnreachable(f"{broker_url}: {reason}; it is safe to try again") from error
    finally:
        connection.close()


def _refusal(broker_url: str, status: int, content: bytes) -> MeshError:
    try:
        answer: Any = msgspec.json.decode(content)
    except msgspec.DecodeError:
        answer = None
    is_problem = isinstance(answer, dict) and "code" in answer
    if not is_problem and status not in _PROXYS_OWN:
        return _not_a_broker(broker_url, status)
    return problem.parse(status, answer)


def _not_a_broker(broker_url: str, status: int) -> ConfigError:
    return ConfigError(f"{broker_url} is no claudemesh broker: it answered {status} and nothing that a broker says")
