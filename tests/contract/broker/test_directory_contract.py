"""Meshes and members: made once, joined by invite, told apart by name and key."""

import asyncio

import pytest

from claudemesh.broker.model import Member, Role
from claudemesh.kernel.errors import InviteRefused, NameTaken
from tests.contract.broker.backends import BOUND_S, House, newcomer, settle


@pytest.mark.req("I3")
async def test_a_mesh_is_made_once_for_each_slug_and_key_and_its_maker_owns_it(house: House) -> None:
    directory = house.stores.directory
    mesh, owner = await directory.create_mesh("uid-1", "demo", newcomer("alice"))
    assert (mesh.uid, mesh.slug, owner.role) == ("uid-1", "demo", Role.OWNER)
    assert await directory.create_mesh("uid-2", "demo", newcomer("alice")) == (mesh, owner)
    other, _ = await directory.create_mesh("uid-3", "demo", newcomer("bob"))
    assert other.id != mesh.id
    assert await directory.mesh("uid-1") == mesh
    assert await directory.mesh("uid-2") is None
    house.reopen()
    assert await house.stores.directory.create_mesh("uid-4", "demo", newcomer("alice")) == (mesh, owner)


@pytest.mark.req("I3")
async def test_joining_is_idempotent_for_each_key_and_counts_once(house: House) -> None:
    directory = house.stores.directory
    town = await settle(house.stores, "alice")
    bob = await directory.join(town.mesh.id, newcomer("bob"), "invite-1", "key-of-alice", 1)
    assert bob.role is Role.MEMBER
    assert await directory.join(town.mesh.id, newcomer("bob"), "invite-1", "key-of-alice", 1) == bob
    with pytest.raises(InviteRefused) as refused:
        await directory.join(town.mesh.id, newcomer("carol"), "invite-1", "key-of-alice", 1)
    assert refused.value.extras["reason"] == "used_up"
    assert [member.name for member in await directory.members(town.mesh.id)] == ["alice", "bob"]
    assert await directory.member(town.mesh.id, "key-of-bob") == bob
    assert await directory.member(town.mesh.id, "key-of-carol") is None


@pytest.mark.req("I3")
async def test_an_invite_lets_in_as_many_as_it_says_also_when_all_come_at_once(house: House) -> None:
    town = await settle(house.stores, "alice")
    async with asyncio.timeout(BOUND_S):
        async with house.held():
            tasks = [
                asyncio.ensure_future(
                    house.stores.directory.join(town.mesh.id, newcomer(f"n{n}"), "invite", "key-of-alice", 3)
                )
                for n in range(6)
            ]
            await asyncio.sleep(0)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Member] * 3 + [InviteRefused] * 3


@pytest.mark.req("Q8")
async def test_only_owners_and_admins_invite(house: House) -> None:
    directory = house.stores.directory
    town = await settle(house.stores, "alice", "bob")
    for inviter in ("key-of-bob", "key-of-nobody"):
        with pytest.raises(InviteRefused) as refused:
            await directory.join(town.mesh.id, newcomer("carol"), "invite-2", inviter, 5)
        assert refused.value.extras["reason"] == "not_allowed"


@pytest.mark.req("Q8")
async def test_a_name_is_one_members_in_a_mesh_whatever_its_case(house: House) -> None:
    directory = house.stores.directory
    town = await settle(house.stores, "alice", "bob")
    other = await settle(house.stores, "eve", slug="other")
    taken = newcomer("BOB")
    with pytest.raises(NameTaken):
        await directory.join(town.mesh.id, taken, "invite-2", "key-of-alice", 5)
    assert (await directory.join(other.mesh.id, taken, "invite-3", "key-of-eve", 5)).name == "BOB"


async def test_a_sessions_key_does_not_become_a_member(house: House) -> None:
    town = await settle(house.stores, "alice")
    await house.stores.directory.remember_session(town["alice"], "key-of-bob", 1)
    with pytest.raises(InviteRefused):
        await house.stores.directory.join(town.mesh.id, newcomer("bob"), "invite-2", "key-of-alice", 5)
