"""The end of keeping: what settled rows held goes when it is old, page by page; all that answers a retry stays."""

from typing import Final, Protocol

PAGE: Final = 500
EMPTIED_UPTO: Final = "emptied_upto"


class EmptiedStore(Protocol):
    async def prune(self, before: int, after_seq: int, limit: int) -> tuple[int, int | None]:
        """Empty one page of settled rows that were accepted before an instant; what answers a retry stays.

        Return how many were emptied, and where to go on; None if there is no older row after that number.
        """

    async def remember(self, name: str, value: str) -> None: ...

    async def recall(self, name: str) -> str | None: ...


async def empty_settled(outbox: EmptiedStore, before: int) -> int:
    """Drop the payloads of settled rows that are old, from where the last sweep ended; say how many."""
    emptied, after = 0, int(await outbox.recall(EMPTIED_UPTO) or 0)
    while True:
        count, following = await outbox.prune(before, after, PAGE)
        emptied += count
        if following is None:
            return emptied
        after = following
        await outbox.remember(EMPTIED_UPTO, str(after))
