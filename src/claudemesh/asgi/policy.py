"""The pure rules of the local surfaces: who may ask, how much at once, and in which form."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from claudemesh.kernel.errors import BadHost, BadOrigin, Forbidden, InvalidRequest, JsonOnly, MeshError

BODY_BYTES_MAX: Final = 1 << 20

# --- how much: a token bucket ----------------------------------------------------------------------

_WHOLE: Final = 1_000  # a bucket counts in thousandths, so that a millisecond's refill is a whole number


@dataclass(frozen=True, slots=True)
class RateLimit:
    per_s: int = 100
    burst: int = 1_000


LOCAL_RATE: Final = RateLimit()


@dataclass(frozen=True, slots=True)
class Bucket:
    level: int  # in thousandths of a request
    at_ms: int


def full_bucket(limit: RateLimit, now_ms: int) -> Bucket:
    return Bucket(limit.burst * _WHOLE, now_ms)


def take(bucket: Bucket, limit: RateLimit, now_ms: int) -> tuple[Bucket, int]:
    """Take one request out; beside the bucket that is left, return how long to wait if there was none (else 0)."""
    elapsed_ms = max(0, now_ms - bucket.at_ms)
    level = min(limit.burst * _WHOLE, bucket.level + elapsed_ms * limit.per_s)
    if level >= _WHOLE:
        return Bucket(level - _WHOLE, now_ms), 0
    return Bucket(level, now_ms), -(-(_WHOLE - level) // limit.per_s)


# --- who: what a browser cannot help sending -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Names:
    """The names under which one listener may be asked for."""

    hosts: frozenset[bytes]
    origins: frozenset[bytes]

    @classmethod
    def of_loopback(cls, port: int, public_hosts: Iterable[str] = ()) -> "Names":
        """Return those of this machine, and the public ones of a proxy on it; no page of any of these may ask."""
        own = [b"127.0.0.1:%d" % port, b"localhost:%d" % port]
        public = [host.lower().encode() for host in public_hosts]
        return cls(frozenset([*own, b"[::1]:%d" % port, *public]), frozenset(b"http://" + name for name in own))


def judge_caller(names: Names | None, method: str, hosts: list[bytes], origins: list[bytes]) -> MeshError | None:
    """Refuse what a web page could send: under a name that resolves to us, or from its own origin.

    The name is judged first. A page that made its own name resolve to us is of the same origin as far as the
    browser knows, and only its name gives it away. Without `names` any will do, and no origin does.
    """
    if len(hosts) > 1:
        return InvalidRequest("the header Host was sent twice")
    if names is not None and (not hosts or hosts[0].lower() not in names.hosts):
        return BadHost()
    if origins and not (names is not None and len(origins) == 1 and origins[0].lower() in names.origins):
        return BadOrigin()
    if method == "OPTIONS":
        return Forbidden("no origin may ask what it could do here")
    return None


# --- in which form ---------------------------------------------------------------------------------

_JSON: Final = b"application/json"


def judge_form(content_type: bytes | None, content_encoding: bytes | None) -> MeshError | None:
    """Take plain JSON only: it is the one form that a page of another origin cannot send without asking first."""
    if content_type != _JSON:
        kind, _, parameters = (content_type or b"").lower().partition(b";")
        charset = parameters.replace(b" ", b"").replace(b'"', b"")
        if kind.strip() != _JSON or charset not in (b"", b"charset=utf-8"):
            return JsonOnly()
    if content_encoding is not None and content_encoding.lower() != b"identity":
        return JsonOnly("a compressed body is not accepted")
    return None
