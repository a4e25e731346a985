"""Meshes and their members."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files

import apsw

from claudemesh.broker.model import ConnectionPolicy, Member, Mesh, Newcomer, Role, Sender
from claudemesh.broker.policy import judge_join, judge_manager, judge_member_change, judge_target
from claudemesh.broker.stores.asks import Join, MemberChange, MeshChange
from claudemesh.broker.stores.rows import to_member, to_mesh
from claudemesh.broker.stores.sqlite.rows import fetch, fetch_one
from claudemesh.kernel.errors import MeshError, Revoked
from claudemesh.storage.sqlfile import load_queries
from claudemesh.storage.sqlite import Database
from claudemesh.wire.names import fold_member_name

_SQL = load_queries(files(__package__) / "directory.sql")


@dataclass(frozen=True, slots=True)
class _CreateMesh:
    uid: str
    slug: str
    owner: Newcomer


@dataclass(frozen=True, slots=True)
class _About:
    sender: Sender
    about: str


class SqliteDirectoryStore:
    def __init__(self, database: Database, unseat: Callable[[int], None]) -> None:
        """Call `unseat` for a member that was revoked."""
        self._database = database
        self._unseat = unseat

    async def create_mesh(self, uid: str, slug: str, owner: Newcomer) -> tuple[Mesh, Member]:
        return await self._database.write(_create_meshes, _CreateMesh(uid, slug, owner))

    async def join(self, mesh_id: int, newcomer: Newcomer, invite_id: str, inviter: str, uses_max: int) -> Member:
        return await self._database.write(_join, Join(mesh_id, newcomer, invite_id, inviter, uses_max))

    async def mesh(self, uid: str) -> Mesh | None:
        return await self._database.read(lambda connection: _mesh(connection, "mesh_by_uid", uid))

    async def member(self, mesh_id: int, pubkey: str) -> Member | None:
        return await self._database.read(lambda connection: _member(connection, mesh_id, pubkey))

    async def members(self, mesh_id: int) -> list[Member]:
        def read(connection: apsw.Connection) -> list[Member]:
            return [to_member(row) for row in fetch(connection, _SQL["members"], (mesh_id,))]

        return await self._database.read(read)

    async def known_keys(self, mesh_id: int, pubkeys: Sequence[str]) -> list[str]:
        def read(connection: apsw.Connection) -> list[str]:
            return [key for key in pubkeys if fetch(connection, _SQL["leads_to_member"], (mesh_id, key))]

        return await self._database.read(read)

    async def revoke(self, actor: Sender, key_or_name: str, now_ms: int) -> Member:
        member = await self._database.write(_change_members, MemberChange(actor, key_or_name, None, now_ms))
        self._unseat(member.id)
        return member

    async def set_role(self, actor: Sender, key_or_name: str, role: Role) -> Member:
        return await self._database.write(_change_members, MemberChange(actor, key_or_name, role, 0))

    async def set_about(self, sender: Sender, about: str) -> None:
        await self._database.write(_set_abouts, _About(sender, about))

    async def set_mesh(self, actor: Sender, policy: ConnectionPolicy | None, sends_per_window: int | None) -> Mesh:
        return await self._database.write(_set_meshes, MeshChange(actor, policy, sends_per_window))


# --- on the writer's thread ------------------------------------------------------------------------


def judge_in_force(connection: apsw.Connection, sender: Sender) -> Revoked | None:
    """Refuse whoever was revoked since the hello; asked in the transaction that does what it wants."""
    row = fetch_one(connection, _SQL["is_in_force"], (sender.member_id, sender.mesh_id))
    return None if row is not None and row[0] else Revoked()


def _create_meshes(
    connection: apsw.Connection, asked: Sequence[_CreateMesh]
) -> list[tuple[Mesh, Member] | MeshError]:
    return [_create_mesh(connection, one) for one in asked]


def _create_mesh(connection: apsw.Connection, asked: _CreateMesh) -> tuple[Mesh, Member] | MeshError:
    owner = asked.owner
    standing = _mesh(connection, "mesh_by_owner", asked.slug, owner.pubkey)
    if standing is not None:
        member = _member(connection, standing.id, owner.pubkey)
        return Revoked() if member is None or member.revoked_at is not None else (standing, member)
    connection.execute(_SQL["create_mesh"], (asked.uid, asked.slug, owner.pubkey, owner.now_ms))
    mesh_id = connection.last_insert_rowid()
    connection.execute(_SQL["create_counter"], (mesh_id,))
    mesh = Mesh(id=mesh_id, uid=asked.uid, slug=asked.slug)
    return mesh, _add_member(connection, mesh_id, owner, Role.OWNER)


def _join(connection: apsw.Connection, asked: Sequence[Join]) -> list[Member | MeshError]:
    return [_join_one(connection, one) for one in asked]


def _join_one(connection: apsw.Connection, asked: Join) -> Member | MeshError:
    newcomer, mesh_id = asked.newcomer, asked.mesh_id
    standing = _member(connection, mesh_id, newcomer.pubkey)
    if standing is not None:
        return standing if standing.revoked_at is None else Revoked()
    refusal = judge_join(
        newcomer,
        _member(connection, mesh_id, asked.inviter),
        asked.uses_max - fetch(connection, _SQL["invite_uses"], (mesh_id, asked.invite_id))[0][0],
        is_key_used=bool(fetch(connection, _SQL["key_holder"], (mesh_id, newcomer.pubkey))),
        is_name_taken=bool(fetch(connection, _SQL["member_by_name"], (mesh_id, newcomer.name_folded))),
    )
    if refusal is not None:
        return refusal
    member = _add_member(connection, mesh_id, newcomer, Role.MEMBER)
    connection.execute(_SQL["use_invite"], (mesh_id, asked.invite_id, member.id, newcomer.now_ms))
    return member


def _add_member(connection: apsw.Connection, mesh_id: int, newcomer: Newcomer, role: Role) -> Member:
    row = (newcomer.uid, mesh_id, newcomer.pubkey, newcomer.name, newcomer.name_folded, role, newcomer.now_ms)
    connection.execute(_SQL["add_member"], row)
    member_id = connection.last_insert_rowid()
    connection.execute(_SQL["add_key"], (mesh_id, newcomer.pubkey, member_id, "member", newcomer.now_ms))
    return newcomer.become_member(member_id, mesh_id, role)


def remember_session(connection: apsw.Connection, sender: Sender, session_pubkey: str, now_ms: int) -> bool:
    """Note a session's key for its member; False if it is already somebody else's."""
    holders = fetch(connection, _SQL["key_holder"], (sender.mesh_id, session_pubkey))
    if not holders:
        row = (sender.mesh_id, session_pubkey, sender.member_id, "session", now_ms)
        connection.execute(_SQL["add_key"], row)
    return not holders or bool(holders[0][0] == sender.member_id)


def _change_members(connection: apsw.Connection, asked: Sequence[MemberChange]) -> list[Member | MeshError]:
    return [_change_member(connection, one) for one in asked]


def _change_member(connection: apsw.Connection, asked: MemberChange) -> Member | MeshError:
    mesh_id = asked.actor.mesh_id
    target = judge_target(_find_member(connection, mesh_id, asked.key_or_name), asked.role)
    if isinstance(target, MeshError):
        return target
    owners = fetch(connection, _SQL["owners"], (mesh_id,))[0][0]
    refusal = judge_member_change(_by_id(connection, asked.actor), target, asked.role, owners)
    if refusal is not None:
        return refusal
    if asked.role is not None:
        connection.execute(_SQL["set_role"], (target.id, asked.role))
    elif target.revoked_at is None:
        connection.execute(_SQL["revoke"], (target.id, asked.now_ms))
        connection.execute(_SQL["end_subscriptions"], (target.id, asked.now_ms))
    return _by_id(connection, Sender(mesh_id, target.id))


def _set_abouts(connection: apsw.Connection, asked: Sequence[_About]) -> list[MeshError | None]:
    outcomes: list[MeshError | None] = []
    for one in asked:
        refusal = judge_in_force(connection, one.sender)
        if refusal is None:
            connection.execute(_SQL["set_about"], (one.sender.member_id, one.about))
        outcomes.append(refusal)
    return outcomes


def _set_meshes(connection: apsw.Connection, asked: Sequence[MeshChange]) -> list[Mesh | MeshError]:
    return [_set_mesh(connection, one) for one in asked]


def _set_mesh(connection: apsw.Connection, asked: MeshChange) -> Mesh | MeshError:
    refusal = judge_manager(_by_id(connection, asked.actor))
    if refusal is not None:
        return refusal
    changes = (asked.actor.mesh_id, asked.policy, asked.sends_per_window)
    return to_mesh(fetch(connection, _SQL["set_mesh"], changes)[0])


# --- rows ------------------------------------------------------------------------------------------


def _mesh(connection: apsw.Connection, query: str, *values: str) -> Mesh | None:
    row = fetch_one(connection, _SQL[query], values)
    return None if row is None else to_mesh(row)


def _member(connection: apsw.Connection, mesh_id: int, pubkey: str) -> Member | None:
    row = fetch_one(connection, _SQL["member"], (mesh_id, pubkey))
    return None if row is None else to_member(row)


def _find_member(connection: apsw.Connection, mesh_id: int, key_or_name: str) -> Member | None:
    """Find a member by its key, else by its name."""
    row = fetch_one(connection, _SQL["member"], (mesh_id, key_or_name)) or fetch_one(
        connection, _SQL["member_by_name"], (mesh_id, fold_member_name(key_or_name))
    )
    return None if row is None else to_member(row)


def _by_id(connection: apsw.Connection, sender: Sender) -> Member:
    return to_member(fetch(connection, _SQL["member_by_id"], (sender.member_id,))[0])
