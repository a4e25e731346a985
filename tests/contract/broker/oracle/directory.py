"""Meshes and their members."""

from collections.abc import Sequence

import msgspec

from claudemesh.broker.model import ConnectionPolicy, Member, Mesh, Newcomer, Role, Sender
from claudemesh.broker.policy import judge_manager, judge_member_change
from claudemesh.kernel.errors import InviteRefused, NameTaken, NotFound, Revoked
from claudemesh.wire.names import fold_member_name
from tests.contract.broker.oracle.world import World


class OracleDirectoryStore:
    def __init__(self, world: World) -> None:
        self._world = world

    async def create_mesh(self, uid: str, slug: str, owner: Newcomer) -> tuple[Mesh, Member]:
        world, made_by = self._world, (slug, owner.pubkey)
        if made_by in world.made:
            mesh = world.meshes[world.made[made_by]]
            return mesh, self._in_force(world.keys[mesh.id, owner.pubkey])
        mesh = Mesh(id=len(world.meshes) + 1, uid=uid, slug=slug)
        world.meshes[mesh.id], world.made[made_by], world.last[mesh.id] = mesh, mesh.id, 0
        return mesh, self._add(mesh.id, owner, Role.OWNER)

    async def join(self, mesh_id: int, newcomer: Newcomer, invite_id: str, inviter: str, uses_max: int) -> Member:
        world = self._world
        standing = await self.member(mesh_id, newcomer.pubkey)
        if standing is not None:
            return self._in_force(standing.id)
        host = await self.member(mesh_id, inviter)
        if host is None or judge_manager(host) is not None:
            raise InviteRefused(reason="not_allowed")
        if world.invited.get((mesh_id, invite_id), 0) >= uses_max:
            raise InviteRefused(reason="used_up")
        if (mesh_id, newcomer.pubkey) in world.keys:
            raise InviteRefused(reason="not_allowed")
        if (mesh_id, newcomer.name_folded) in world.names:
            raise NameTaken
        world.invited[mesh_id, invite_id] = world.invited.get((mesh_id, invite_id), 0) + 1
        return self._add(mesh_id, newcomer, Role.MEMBER)

    async def mesh(self, uid: str) -> Mesh | None:
        return next((mesh for mesh in self._world.meshes.values() if mesh.uid == uid), None)

    async def member(self, mesh_id: int, pubkey: str) -> Member | None:
        everybody = self._world.members.values()
        return next((one for one in everybody if (one.mesh_id, one.pubkey) == (mesh_id, pubkey)), None)

    async def members(self, mesh_id: int) -> list[Member]:
        everybody = self._world.members.values()
        return [one for one in everybody if one.mesh_id == mesh_id and one.revoked_at is None]

    async def known_keys(self, mesh_id: int, pubkeys: Sequence[str]) -> list[str]:
        leads_to = {key: self._world.keys.get((mesh_id, key)) for key in pubkeys}
        return [
            key for key, id_ in leads_to.items() if id_ is not None and self._world.members[id_].revoked_at is None
        ]

    async def revoke(self, actor: Sender, key_or_name: str, now_ms: int) -> Member:
        target = await self._find(actor.mesh_id, key_or_name)
        self._check_change(actor, target, None)
        if target.revoked_at is not None:
            return target
        self._world.chairs = [chair for chair in self._world.chairs if chair.sender.member_id != target.id]
        for topic in self._world.topics.values():
            topic.subscribers.pop(target.id, None)
        return self._change(target.id, revoked_at=now_ms)

    async def set_role(self, actor: Sender, key_or_name: str, role: Role) -> Member:
        target = await self._find(actor.mesh_id, key_or_name)
        if target.revoked_at is not None:
            raise NotFound
        self._check_change(actor, target, role)
        return self._change(target.id, role=role)

    async def set_about(self, sender: Sender, about: str) -> None:
        self._world.check_in_force(sender)
        self._change(sender.member_id, about=about)

    async def set_mesh(self, actor: Sender, policy: ConnectionPolicy | None, sends_per_window: int | None) -> Mesh:
        refusal = judge_manager(self._world.members[actor.member_id])
        if refusal is not None:
            raise refusal
        mesh = self._world.meshes[actor.mesh_id]
        if policy is not None:
            mesh = msgspec.structs.replace(mesh, policy=policy)
        if sends_per_window is not None:
            mesh = msgspec.structs.replace(mesh, sends_per_window=sends_per_window)
        self._world.meshes[mesh.id] = mesh
        return mesh

    def _add(self, mesh_id: int, newcomer: Newcomer, role: Role) -> Member:
        world = self._world
        member = newcomer.become_member(len(world.members) + 1, mesh_id, role)
        world.members[member.id] = member
        world.names[mesh_id, newcomer.name_folded] = world.keys[mesh_id, newcomer.pubkey] = member.id
        return member

    def _in_force(self, member_id: int) -> Member:
        member = self._world.members[member_id]
        if member.revoked_at is not None:
            raise Revoked
        return member

    async def _find(self, mesh_id: int, key_or_name: str) -> Member:
        by_key = await self.member(mesh_id, key_or_name)
        by_name = self._world.names.get((mesh_id, fold_member_name(key_or_name)))
        if by_key is None and by_name is None:
            raise NotFound
        return by_key or self._world.members[by_name or 0]

    def _check_change(self, actor: Sender, target: Member, role: Role | None) -> None:
        everybody = [one for one in self._world.members.values() if one.mesh_id == actor.mesh_id]
        owners = sum(one.role is Role.OWNER and one.revoked_at is None for one in everybody)
        refusal = judge_member_change(self._world.members[actor.member_id], target, role, owners)
        if refusal is not None:
            raise refusal

    def _change(self, member_id: int, **fields: object) -> Member:
        changed = msgspec.structs.replace(self._world.members[member_id], **fields)
        self._world.members[member_id] = changed
        return changed
