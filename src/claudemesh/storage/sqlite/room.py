"""How much a file may hold, asked inside the transaction that would take more: so the answer is never old."""

import apsw

from claudemesh.kernel.errors import StoreFull


def used_bytes(connection: apsw.Connection) -> int:
    """Count what holds something: emptied pages can be used again, although the file does not shrink."""
    pages = int(connection.pragma("page_count")) - int(connection.pragma("freelist_count"))
    return pages * int(connection.pragma("page_size"))


def refusal_beyond(connection: apsw.Connection, limit_bytes: int) -> StoreFull | None:
    """Return the refusal of whatever would need more room, if that much is in use."""
    used = used_bytes(connection)
    return StoreFull(f"{used} bytes are in use, and {limit_bytes} may be") if used >= limit_bytes else None
