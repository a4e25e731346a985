"""Who is in the mesh, held in memory: a name or a key in, a destination out.

The store has the last directory the broker told, so that names resolve also while it is away.
"""

from collections.abc import Iterable
from typing import Final

from claudemesh.daemon.model import Destination, Member
from claudemesh.kernel.fingerprint import Kind
from claudemesh.runtime.keys import is_pubkey
from claudemesh.wire.names import fold_member_name

OTHER_KEYS_MAX: Final = 10_000


class Directory:
    def __init__(self, members: Iterable[Member] = ()) -> None:
        self._other_keys: set[str] = set()
        self.replace(members)

    def replace(self, members: Iterable[Member]) -> None:
        self.members = tuple(members)
        self._by_key = {member.pubkey: member for member in self.members}
        self._by_name = {fold_member_name(member.name): member for member in self.members}

    def find(self, name_or_key: str) -> Member | None:
        """Find a member. What looks like a key is one, and never somebody's name."""
        if is_pubkey(name_or_key):
            return self._by_key.get(name_or_key)
        return self._by_name.get(fold_member_name(name_or_key))

    def learn(self, keys: Iterable[str]) -> None:
        """Take note of keys that lead to a member without being its own: a session's, or one it had before."""
        if len(self._other_keys) > OTHER_KEYS_MAX:
            self._other_keys.clear()  # they are asked for again
        self._other_keys.update(keys)

    def resolve(self, to: str) -> Destination | None:
        if to in self._other_keys:
            return Destination(Kind.DM, to)
        member = self.find(to)
        return None if member is None else Destination(Kind.DM, member.pubkey)
