"""`daemon remint`: a copied state directory becomes a member of its own.

The copy holds the original's unsent messages too. Sent under a new key they would arrive a second time, since an id
is scoped to its sender; so the copy's outbox and inbox are put aside with the old key, and the original sends them.
The order survives a crash at any point: the broker is asked with a key that is kept, then the old files are put
aside, then the new identity is stored; run again it goes on where it stopped.
"""

from pathlib import Path
from typing import Final

from claudemesh.cli import enrol
from claudemesh.daemon import identity
from claudemesh.daemon.client import mint_id
from claudemesh.daemon.identity import Joined
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import InvalidRequest
from claudemesh.runtime.home import InstanceLock, ensure_private_dir, sync_directory
from claudemesh.wire.invite import Invite, parse_code

INVITE_MS: Final = 10 * 60_000
ASIDE: Final = ("outbox.db*", "inbox.db*", identity.INSTANCE, "local_token", "http.port")


def remint(state_dir: Path, name: str | None, code: str | None, clock: Clock) -> tuple[Joined, Path]:
    """Return the new membership, and where the old files are."""
    with InstanceLock(state_dir / "pid"):
        old = identity.load_membership(state_dir)
        invite = _own_invite(state_dir, old, clock) if code is None else parse_code(code)
        if (invite.mesh_id, invite.slug) != (old.mesh_id, old.slug):
            raise InvalidRequest(f"the code is for another mesh than {old.slug!r}")
        keys, joined = enrol.rejoin(state_dir, invite, name or f"{old.name}-2", clock)
        kept = state_dir / f"before-remint-{clock.wall_ms()}"
        ensure_private_dir(kept)
        for pattern in ASIDE:
            for path in state_dir.glob(pattern):
                path.rename(kept / path.name)
        identity.write_keys(kept / identity.KEYS, identity.load_keys(state_dir))
        sync_directory(state_dir)
        enrol.settle_rejoined(state_dir, keys, joined)
        return joined, kept


def _own_invite(state_dir: Path, old: Joined, clock: Clock) -> Invite:
    """Invite oneself: the copy still has the old key, and may if that one may."""
    if old.role not in enrol.INVITERS:
        raise InvalidRequest(
            "your old key may not invite: ask an owner or admin for a code, and give it with --code"
        )
    return enrol.make_invite(old, identity.load_keys(state_dir), mint_id(), 1, clock.wall_ms() + INVITE_MS)
