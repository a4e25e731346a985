"""How a mesh is made and joined. Signatures and dates are judged here, roles and uses in the transaction."""

from collections.abc import Callable

from claudemesh.broker.model import Member, Mesh, Newcomer
from claudemesh.broker.ports import DirectoryStore
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import InviteRefused, Unauthenticated
from claudemesh.runtime.keys import is_pubkey, verify
from claudemesh.wire.frames import CLOCK_SKEW_MAX_MS
from claudemesh.wire.invite import CreateMesh, Membership, Redeem
from claudemesh.wire.names import fold_member_name, parse_member_name, parse_slug
from claudemesh.wire.signing import create_mesh_bytes, invite_bytes, redeem_bytes

Joined = Callable[[Mesh, Member], None]  # told after the commit, for those whom it concerns


class MembershipService:
    def __init__(
        self,
        directory: DirectoryStore,
        clock: Clock,
        mint: Callable[[], str],
        broker_key: str,
        joined: Joined = lambda _mesh, _member: None,
    ) -> None:
        self._directory = directory
        self._joined = joined
        self._clock = clock
        self._mint = mint
        self._broker_key = broker_key

    async def create_mesh(self, request: CreateMesh) -> Membership:
        """Make a mesh; its creator is the owner. The same slug and key again is answered as the first time."""
        slug = parse_slug(request.slug)
        newcomer = self._newcomer(request)
        self._check_proof(request, lambda: create_mesh_bytes(request))
        mesh, member = await self._directory.create_mesh(self._mint(), slug, newcomer)
        return self._membership(mesh, member)

    async def redeem(self, request: Redeem) -> Membership:
        """Join by an invite; the same key again is answered as the first time."""
        invite = request.invite
        newcomer = self._newcomer(request)
        self._check_proof(request, lambda: redeem_bytes(request))
        if not _is_signed(invite.inviter_pubkey, lambda: invite_bytes(invite), invite.signature):
            raise InviteRefused("its signature is not the inviter's", reason="bad_signature")
        mesh = await self._directory.mesh(invite.mesh_id)
        if mesh is None:
            raise InviteRefused("this broker does not know its mesh", reason="unknown_mesh")
        standing = await self._directory.member(mesh.id, newcomer.pubkey)
        # Whoever is a member already only asks again: its invite may have ended meanwhile.
        if standing is None and self._clock.wall_ms() >= invite.expires_at:
            raise InviteRefused("it has expired", reason="expired")
        member = await self._directory.join(mesh.id, newcomer, invite.invite_id, invite.inviter_pubkey, invite.uses)
        if standing is None:
            self._joined(mesh, member)
        return self._membership(mesh, member)

    def _newcomer(self, request: CreateMesh | Redeem) -> Newcomer:
        name = parse_member_name(request.name)
        return Newcomer(
            uid=self._mint(),
            pubkey=request.member_pubkey,
            name=name,
            name_folded=fold_member_name(name),
            now_ms=self._clock.wall_ms(),
        )

    def _check_proof(self, request: CreateMesh | Redeem, signed: Callable[[], bytes]) -> None:
        """Check that the caller holds the key it brings, now."""
        if not _is_signed(request.member_pubkey, signed, request.signature):
            raise Unauthenticated("the signature is not this key's", reason="bad_signature")
        now = self._clock.wall_ms()
        if abs(request.timestamp_ms - now) > CLOCK_SKEW_MAX_MS:
            raise Unauthenticated("the clocks differ too much", reason="clock_skew", server_time_ms=now)

    def _membership(self, mesh: Mesh, member: Member) -> Membership:
        return Membership(
            mesh_id=mesh.uid,
            slug=mesh.slug,
            member_id=member.uid,
            name=member.name,
            role=member.role,
            broker_key=self._broker_key,
        )


def _is_signed(pubkey: str, signed: Callable[[], bytes], signature: str) -> bool:
    if not is_pubkey(pubkey):
        return False
    try:
        return verify(pubkey, signed(), signature)
    except ValueError:  # a NUL, or what is no text: nobody can have signed that
        return False
