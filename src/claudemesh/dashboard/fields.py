"""What the questions of a page have in common."""

from typing import Annotated, Final

import msgspec

LIMIT_DEFAULT: Final = 50
LIMIT_MAX: Final = 200
NUMBER_MAX: Final = 2**63 - 1

Limit = Annotated[int, msgspec.Meta(ge=1, description=f"At most so many; beyond {LIMIT_MAX} it is {LIMIT_MAX}.")]
Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)]
Key = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9._:-]+(?!\n)$",
        max_length=128,
        description="Of this one decision: the same again for a second try, and for nothing else.",
    ),
]


def clamp(limit: int) -> int:
    return min(limit, LIMIT_MAX)
