"""What the relay needs of its store and of its upstream, in its own words."""

from dataclasses import dataclass

from claudemesh.edge.model import StandingRow


@dataclass(frozen=True, slots=True)
class Looked:
    """What a write meets: what stands under its key, and whether others to its entity wait."""

    standing: StandingRow | None
    has_open: bool


@dataclass(frozen=True, slots=True)
class OutageSeen:
    id: str
    began_at: int
    online_at: int | None
    first_seq: int  # the first envelope that could belong to it


@dataclass(frozen=True, slots=True)
class Results:
    """What became of envelopes: how many in each state, and how many a later one made needless."""

    counts: dict[str, int]
    coalesced: int
