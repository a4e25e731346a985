"""The idempotency of an HTTP write: what a key may be, which answers are kept, and what a second request meets.

A worker that begins a write puts its mark under the key: a lease, which it renews. Its answer settles the mark, or
takes it away again where the answer says nothing final. IDEA 1 and IDEA 3 together decide the rest: `judge_begin`
looks the standing mark up in ADMISSION, and lets a mark whose lease is over be taken by whoever asks for the same.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from claudemesh.kernel.admission import FRESH, AdmissionTable, Busy, Conflict, Match, Replay, Standing, Verdict
from claudemesh.kernel.fingerprint import Fingerprint
from claudemesh.kernel.lease import Lease
from claudemesh.kernel.write_errors import BadIdempotencyKey

KEY_CHARS_MAX: Final = 255
EXPIRY_DAYS_MIN: Final = 30
BUSY_RETRY_MS: Final = 1_000  # most writes take less; a dead worker's mark takes a few rounds

WRITES: Final = ("POST", "PUT", "PATCH", "DELETE")

# Refusals that a second try under the same key may well get past: who asks, when, or against which state.
NEVER_KEPT: Final = (401, 403, 408, 409, 412, 425, 429)

# Quoted it is a string of RFC 9651, in which a backslash stands before a quote or another backslash.
_BARE: Final = re.compile(r"[!#-~]+")
_QUOTED: Final = re.compile(r'"((?:[!#-\[\]-~]|\\["\\])*)"')
_ESCAPED: Final = re.compile(r"\\(.)")


class MarkState(StrEnum):
    IN_PROGRESS = "in_progress"  # a worker is at it, or died over it
    SETTLED = "settled"  # answered, and the answer is kept
    STATUS_ONLY = "status_only"  # answered, but of the answer only the status could be kept


_S, _SAME, _OTHER = MarkState, Match.SAME, Match.OTHER

ANSWER_NOT_KEPT: Final = Conflict("answer_not_kept")

ADMISSION: Final = AdmissionTable(
    MarkState,
    {
        (_S.IN_PROGRESS, _SAME): Busy("in_progress"),
        (_S.IN_PROGRESS, _OTHER): Conflict("in_progress_fingerprint_mismatch"),
        (_S.SETTLED, _SAME): Replay("settled"),
        (_S.SETTLED, _OTHER): Conflict("settled_fingerprint_mismatch"),
        (_S.STATUS_ONLY, _SAME): ANSWER_NOT_KEPT,
        (_S.STATUS_ONLY, _OTHER): Conflict("settled_fingerprint_mismatch"),
    },
)


@dataclass(frozen=True, slots=True)
class StandingMark(Standing[MarkState]):
    """What a store found under a key; `lease` by the clock of that store."""

    lease: Lease
    expires_at: int


def judge_begin(standing: StandingMark | None, presented: Fingerprint, now_ms: int, lease_now_ms: int) -> Verdict:
    """Decide whether a worker may begin: FRESH, or what the table says of the mark that stands.

    A mark whose lease is over is as good as none to the same request, and still in the way of any other: the write
    that it stands for may have happened. One that expired, after months, is in nobody's way.
    """
    if standing is None:
        return FRESH
    is_live = standing.state is MarkState.IN_PROGRESS and standing.lease.is_live(lease_now_ms)
    if not is_live and standing.expires_at <= now_ms:
        return FRESH
    verdict = ADMISSION.judge(standing, presented)
    return FRESH if isinstance(verdict, Busy) and not is_live else verdict


def parse_key(value: str) -> str:
    """Return the key that a header holds, quoted or bare; both are the same key."""
    quoted = _QUOTED.fullmatch(value)
    key = _ESCAPED.sub(r"\1", quoted[1]) if quoted else value
    if not 1 <= len(key) <= KEY_CHARS_MAX or not (quoted or _BARE.fullmatch(value)):
        raise BadIdempotencyKey
    return key


def render_key(key: str) -> str:
    """Return the key as it goes into a header: quoted, if bare it would be no key, or another one."""
    if '"' not in key:
        return key
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def is_kept(status: int) -> bool:
    """Say whether an answer is final: a success, or a refusal that the same request would meet again."""
    return 200 <= status < 300 or (400 <= status < 500 and status not in NEVER_KEPT)  # noqa: PLR2004  HTTP's ranges
