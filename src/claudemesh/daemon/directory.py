"""Who is in the mesh, held in memory: a name or a key in, a destination out.

The store has the last directory the broker told, so that names resolve also while it is away.
"""

from collections.abc import Iterable

from claudemesh.daemon.model import Destination, Member
from claudemesh.kernel.fingerprint import Kind
from claudemesh.wire.names import fold_member_name


class Directory:
    def __init__(self, members: Iterable[Member] = ()) -> None:
        self.replace(members)

    def replace(self, members: Iterable[Member]) -> None:
        self.members = tuple(members)
        self._by_key = {member.pubkey: member for member in self.members}
        self._by_name = {fold_member_name(member.name): member for member in self.members}

    def find(self, name_or_key: str) -> Member | None:
        """Find a member; a key wins over a name that looks like one."""
        return self._by_key.get(name_or_key) or self._by_name.get(fold_member_name(name_or_key))

    def resolve(self, to: str) -> Destination | None:
        member = self.find(to)
        return None if member is None else Destination(Kind.DM, member.pubkey)
