"""Meshes and their members. Who may be one is judged under a lock of the mesh's row, so that brokers agree.

A statement that waited for a lock still sees what was before: so the lock is taken by a statement of its own.
"""

from collections.abc import Iterable, Sequence
from importlib.resources import files

from claudemesh.broker.model import ConnectionPolicy, Member, Mesh, Newcomer, Role, Sender
from claudemesh.broker.policy import judge_join, judge_manager, judge_member_change, judge_target
from claudemesh.broker.stores.asks import Join, MemberChange, MeshChange
from claudemesh.broker.stores.postgres.writers import MeshWriters, lock_counters
from claudemesh.broker.stores.rows import to_member, to_mesh
from claudemesh.kernel.errors import InviteRefused, MeshError, Revoked
from claudemesh.storage.postgres import Connection, Database
from claudemesh.storage.postgres.database import column
from claudemesh.storage.sqlfile import load_queries
from claudemesh.wire.names import fold_member_name

_SQL = load_queries(files(__package__) / "directory.sql")


class PostgresDirectoryStore:
    def __init__(self, database: Database, writers: MeshWriters) -> None:
        self._database = database
        self._writers = writers

    async def create_mesh(self, uid: str, slug: str, owner: Newcomer) -> tuple[Mesh, Member]:
        async def create(connection: Connection) -> tuple[Mesh, Member]:
            created = await _create_mesh(connection, uid, slug, owner)
            return created or await _standing_mesh(connection, slug, owner)

        return await self._database.transact(create)

    async def join(self, mesh_id: int, newcomer: Newcomer, invite_id: str, inviter: str, uses_max: int) -> Member:
        asked = Join(mesh_id, newcomer, invite_id, inviter, uses_max)
        return await self._writers.of(mesh_id).submit(_join, asked)

    async def mesh(self, uid: str) -> Mesh | None:
        rows = await self._database.fetch(_SQL["mesh_by_uid"], uid)
        return to_mesh(rows[0]) if rows else None

    async def member(self, mesh_id: int, pubkey: str) -> Member | None:
        rows = await self._database.fetch(_SQL["member"], mesh_id, pubkey)
        return to_member(rows[0]) if rows else None

    async def members(self, mesh_id: int) -> list[Member]:
        return [to_member(row) for row in await self._database.fetch(_SQL["members"], mesh_id)]

    async def known_keys(self, mesh_id: int, pubkeys: Sequence[str]) -> list[str]:
        known = {*column(await self._database.fetch(_SQL["known_keys"], mesh_id, pubkeys))}
        return [key for key in pubkeys if key in known]

    async def revoke(self, actor: Sender, key_or_name: str, now_ms: int) -> Member:
        asked = MemberChange(actor, key_or_name, None, now_ms)
        return await self._writers.of(actor.mesh_id).submit(_change_members, asked)

    async def set_role(self, actor: Sender, key_or_name: str, role: Role) -> Member:
        asked = MemberChange(actor, key_or_name, role, 0)
        return await self._writers.of(actor.mesh_id).submit(_change_members, asked)

    async def set_about(self, sender: Sender, about: str) -> None:
        if not await self._database.fetch(_SQL["set_about"], sender.member_id, about):
            raise Revoked

    async def set_mesh(self, actor: Sender, policy: ConnectionPolicy | None, sends_per_window: int | None) -> Mesh:
        asked = MeshChange(actor, policy, sends_per_window)
        return await self._writers.of(actor.mesh_id).submit(_set_meshes, asked)


# --- in a transaction ------------------------------------------------------------------------------


async def _create_mesh(connection: Connection, uid: str, slug: str, owner: Newcomer) -> tuple[Mesh, Member] | None:
    mesh_id = await connection.fetchval(_SQL["create_mesh"], uid, slug, owner.pubkey, owner.now_ms)
    if mesh_id is None:
        return None
    await connection.execute(_SQL["create_counter"], mesh_id)
    return Mesh(id=mesh_id, uid=uid, slug=slug), await _add_member(connection, mesh_id, owner, Role.OWNER)


async def _standing_mesh(connection: Connection, slug: str, owner: Newcomer) -> tuple[Mesh, Member]:
    mesh = to_mesh((await connection.fetch(_SQL["mesh_by_owner"], slug, owner.pubkey))[0])
    member = await _member(connection, mesh.id, owner.pubkey)
    if member is None or member.revoked_at is not None:
        raise Revoked
    return mesh, member


async def _join(connection: Connection, asked: Sequence[Join]) -> list[Member | MeshError]:
    await _lock_meshes(connection, (one.mesh_id for one in asked))
    return [await _join_one(connection, one) for one in asked]


async def _join_one(connection: Connection, asked: Join) -> Member | MeshError:
    newcomer, mesh_id = asked.newcomer, asked.mesh_id
    standing = await _member(connection, mesh_id, newcomer.pubkey)
    if standing is not None:
        return standing if standing.revoked_at is None else Revoked()
    refusal = judge_join(
        newcomer,
        await _member(connection, mesh_id, asked.inviter),
        asked.uses_max - await connection.fetchval(_SQL["invite_uses"], mesh_id, asked.invite_id),
        is_key_used=bool(await connection.fetch(_SQL["key_holder"], mesh_id, newcomer.pubkey)),
        is_name_taken=bool(await connection.fetch(_SQL["member_by_name"], mesh_id, newcomer.name_folded)),
    )
    if refusal is not None:
        return refusal
    member = await _add_member(connection, mesh_id, newcomer, Role.MEMBER)
    await connection.execute(_SQL["use_invite"], mesh_id, asked.invite_id, member.id, newcomer.now_ms)
    return member


async def _add_member(connection: Connection, mesh_id: int, newcomer: Newcomer, role: Role) -> Member:
    row = (newcomer.uid, mesh_id, newcomer.pubkey, newcomer.name, newcomer.name_folded, role, newcomer.now_ms)
    member_id = await connection.fetchval(_SQL["add_member"], *row)
    key = (mesh_id, newcomer.pubkey, member_id, "member", newcomer.now_ms)
    if not await connection.fetch(_SQL["add_key"], *key):
        # A session took it a moment ago: those do not wait for the mesh.
        raise InviteRefused("this key was used in the mesh before", reason="not_allowed")
    return newcomer.become_member(member_id, mesh_id, role)


async def _change_members(connection: Connection, asked: Sequence[MemberChange]) -> list[Member | MeshError]:
    await _lock_meshes(connection, (one.actor.mesh_id for one in asked))
    await lock_counters(connection, (one.actor for one in asked if one.role is None))
    return [await _change_member(connection, one) for one in asked]


async def _change_member(connection: Connection, asked: MemberChange) -> Member | MeshError:
    mesh_id = asked.actor.mesh_id
    target = judge_target(await _find_member(connection, mesh_id, asked.key_or_name), asked.role)
    if isinstance(target, MeshError):
        return target
    actor = await _by_id(connection, asked.actor.member_id)
    owners = await connection.fetchval(_SQL["owners"], mesh_id)
    refusal = judge_member_change(actor, target, asked.role, owners)
    if refusal is not None:
        return refusal
    if asked.role is not None:
        await connection.execute(_SQL["set_role"], target.id, asked.role)
    elif target.revoked_at is None:
        await connection.execute(_SQL["revoke"], target.id, asked.now_ms)
        await connection.execute(_SQL["end_subscriptions"], target.id, asked.now_ms)
    return await _by_id(connection, target.id)


async def _set_meshes(connection: Connection, asked: Sequence[MeshChange]) -> list[Mesh | MeshError]:
    await _lock_meshes(connection, (one.actor.mesh_id for one in asked))
    return [await _set_mesh(connection, one) for one in asked]


async def _set_mesh(connection: Connection, asked: MeshChange) -> Mesh | MeshError:
    refusal = judge_manager(await _by_id(connection, asked.actor.member_id))
    if refusal is not None:
        return refusal
    changes = (asked.actor.mesh_id, asked.policy, asked.sends_per_window)
    return to_mesh((await connection.fetch(_SQL["set_mesh"], *changes))[0])


async def _lock_meshes(connection: Connection, mesh_ids: Iterable[int]) -> None:
    await connection.fetch(_SQL["lock_meshes"], sorted({*mesh_ids}))


async def _member(connection: Connection, mesh_id: int, pubkey: str) -> Member | None:
    row = await connection.fetchrow(_SQL["member"], mesh_id, pubkey)
    return None if row is None else to_member(row)


async def _find_member(connection: Connection, mesh_id: int, key_or_name: str) -> Member | None:
    """Find a member by its key, else by its name."""
    by_name = (mesh_id, fold_member_name(key_or_name))
    row = await connection.fetchrow(_SQL["member"], mesh_id, key_or_name)
    row = row or await connection.fetchrow(_SQL["member_by_name"], *by_name)
    return None if row is None else to_member(row)


async def _by_id(connection: Connection, member_id: int) -> Member:
    return to_member((await connection.fetch(_SQL["member_by_id"], member_id))[0])


async def remember_session(connection: Connection, sender: Sender, session_pubkey: str, now_ms: int) -> bool:
    """Note a session's key for its member; False if it is already somebody else's."""
    row = (sender.mesh_id, session_pubkey, sender.member_id, "session", now_ms)
    if await connection.fetch(_SQL["add_key"], *row):
        return True
    return column(await connection.fetch(_SQL["key_holder"], sender.mesh_id, session_pubkey)) == [sender.member_id]
