"""Meshes and members: made once, joined by invite, told apart by name and key."""

import asyncio
from collections.abc import Awaitable

import pytest

from claudemesh.broker.model import Accepted, Claim, ConnectionPolicy, Member, Role
from claudemesh.kernel.errors import DestinationNotFound, Forbidden, InviteRefused, NameTaken, NotFound, Revoked
from tests.contract.broker.backends import (
    BOUND_S,
    NOW,
    House,
    batch,
    dm,
    job,
    know_session,
    newcomer,
    post,
    seat,
    settle,
    subscribe,
)


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
    await house.reopen()
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
    await know_session(house.stores, town, "alice", "key-of-bob")
    with pytest.raises(InviteRefused):
        await house.stores.directory.join(town.mesh.id, newcomer("bob"), "invite-2", "key-of-alice", 5)


# --- roles and revoking ------------------------------------------------------------------------------------


@pytest.mark.req("Q8")
async def test_a_revoked_member_sends_and_gets_nothing_more_and_what_it_had_stays(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob", "carol")
    await subscribe(stores, town, "news", "alice", "bob", "carol")
    await stores.accepts.accept(batch(town["alice"], dm("1", "bob"), post("2", "news")))
    await stores.accepts.accept(batch(town["bob"], dm("b1", "alice")))
    bobs = await seat(stores, town, "bob")
    waiting = await stores.deliveries.depth()
    gone = await stores.directory.revoke(town["alice"], "BOB", NOW + 5)
    assert (gone.name, gone.revoked_at) == ("bob", NOW + 5)
    assert await stores.directory.revoke(town["alice"], "key-of-bob", NOW + 9) == gone, "said again it is as it was"
    assert (await stores.deliveries.page(bobs, 0, 10, 1000)).parcels == []
    assert await stores.deliveries.depth() == waiting
    with pytest.raises(Revoked):
        await seat(stores, town, "bob")
    await house.reopen()
    stores = house.stores
    assert [one.name for one in await stores.directory.members(town.mesh.id)] == ["alice", "carol"]
    assert await stores.directory.known_keys(town.mesh.id, ["key-of-alice", "key-of-bob"]) == ["key-of-alice"]
    sent = await stores.accepts.accept(batch(town["bob"], dm("b2", "alice")))
    assert [type(outcome) for outcome in sent] == [Revoked]
    refused, posted = await stores.accepts.accept(batch(town["alice"], dm("3", "bob"), post("4", "news")))
    assert isinstance(refused, DestinationNotFound)
    assert isinstance(posted, Accepted)
    assert posted.recipients == (town["carol"].member_id,)
    [receipt] = await stores.receipts.receipts(town["alice"], ["1"], [])
    assert receipt.recipients[0].name == "bob"
    with pytest.raises(Revoked):
        await stores.directory.join(town.mesh.id, newcomer("bob"), "invite", "key-of-alice", 1000)
    impostor = newcomer("Bob")
    with pytest.raises(NameTaken):
        await stores.directory.join(town.mesh.id, impostor, "invite", "key-of-alice", 1000)
    assert await stores.upkeep.check() == []


@pytest.mark.req("Q8")
async def test_an_invite_of_a_revoked_admin_lets_nobody_in(house: House) -> None:
    directory = house.stores.directory
    town = await settle(house.stores, "alice", "bob")
    await directory.set_role(town["alice"], "bob", Role.ADMIN)
    await directory.join(town.mesh.id, newcomer("carol"), "invite-2", "key-of-bob", 5)
    await directory.revoke(town["alice"], "bob", NOW)
    with pytest.raises(InviteRefused) as refused:
        await directory.join(town.mesh.id, newcomer("dave"), "invite-2", "key-of-bob", 5)
    assert refused.value.extras["reason"] == "not_allowed"


@pytest.mark.req("Q8")
async def test_a_member_who_was_revoked_since_its_hello_changes_nothing(house: House) -> None:
    stores = house.stores
    town = await settle(stores, "alice", "bob")
    await subscribe(stores, town, "news", "alice", "bob")
    await stores.work.create_queue(town["alice"], "jobs", NOW)
    await stores.accepts.accept(batch(town["alice"], job("1", "jobs"), job("2", "jobs")))
    work = await stores.work.work(town["bob"], "jobs", 300_000, NOW)
    assert work is not None
    gone, held = town["bob"], Claim(town["bob"], "jobs", work.broker_message_id, work.lease_token)
    await stores.directory.revoke(town["alice"], "bob", NOW)
    refused: list[Awaitable[object]] = [
        stores.topics.create_topic(gone, "mine", NOW),
        stores.topics.subscribe(gone, "news"),
        stores.topics.unsubscribe(gone, "news", NOW),
        stores.work.create_queue(gone, "mine", NOW),
        stores.work.work(gone, "jobs", 300_000, NOW),
        stores.work.renew(held, 300_000),
        stores.work.nack(held, NOW),
        stores.work.ack(held, NOW),
        stores.directory.set_about(gone, "still here"),
        stores.directory.set_role(gone, "alice", Role.MEMBER),
        stores.directory.set_mesh(gone, None, 5),
        stores.directory.revoke(gone, "alice", NOW),
    ]
    assert [type(one) for one in await asyncio.gather(*refused, return_exceptions=True)] == [Revoked] * len(refused)
    assert [topic.name for topic in await stores.topics.topics(town["alice"])] == ["news"]
    [queue] = await stores.work.queues(town["alice"])
    assert (queue.name, queue.ready, queue.leased) == ("jobs", 1, 1)
    assert [type(one) for one in await stores.accepts.accept(batch(gone, dm("b", "alice")))] == [Revoked]


@pytest.mark.req("Q8")
async def test_roles_are_set_by_those_who_may_and_hold_at_once(house: House) -> None:
    directory = house.stores.directory
    town = await settle(house.stores, "alice", "bob", "carol")
    with pytest.raises(Forbidden):
        await directory.set_role(town["bob"], "bob", Role.ADMIN)
    assert (await directory.set_role(town["alice"], "bob", Role.ADMIN)).role is Role.ADMIN
    assert (await directory.set_role(town["bob"], "carol", Role.ADMIN)).role is Role.ADMIN
    for role in (Role.ADMIN, Role.MEMBER):
        with pytest.raises(Forbidden):
            await directory.set_role(town["bob"], "alice", role)
    with pytest.raises(Forbidden) as refused:
        await directory.revoke(town["alice"], "alice", NOW)
    assert refused.value.extras["reason"] == "last_owner"
    await directory.set_role(town["alice"], "bob", Role.OWNER)
    await directory.revoke(town["alice"], "alice", NOW)
    with pytest.raises(Revoked):
        await directory.set_role(town["alice"], "bob", Role.MEMBER)
    with pytest.raises(NotFound):
        await directory.set_role(town["bob"], "alice", Role.MEMBER)
    assert (await directory.revoke(town["bob"], "alice", NOW + 1)).revoked_at == NOW  # said again it is as it was
    with pytest.raises(NotFound):
        await directory.revoke(town["bob"], "nobody", NOW)
    assert {one.name: one.role for one in await directory.members(town.mesh.id)} == {
        "bob": Role.OWNER,
        "carol": Role.ADMIN,
    }


@pytest.mark.req("Q8")
async def test_of_two_owners_who_revoke_each_other_at_once_one_stays(house: House) -> None:
    directory = house.stores.directory
    town = await settle(house.stores, "alice", "bob")
    await directory.set_role(town["alice"], "bob", Role.OWNER)
    async with asyncio.timeout(BOUND_S):
        async with house.held():
            tasks = [
                asyncio.ensure_future(directory.revoke(town[actor], target, NOW))
                for actor, target in (("alice", "bob"), ("bob", "alice"))
            ]
            await asyncio.sleep(0)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Member, Revoked]
    assert [one.name for one in await directory.members(town.mesh.id)] == ["alice"]


@pytest.mark.req("Q8", "B1")
async def test_owners_and_admins_set_what_the_mesh_goes_by(house: House) -> None:
    directory = house.stores.directory
    town = await settle(house.stores, "alice", "bob")
    other = await settle(house.stores, "eve", slug="other")
    with pytest.raises(Forbidden):
        await directory.set_mesh(town["bob"], None, 5)
    assert (await directory.set_mesh(town["alice"], None, 5)).sends_per_window == 5
    await directory.set_role(town["alice"], "bob", Role.ADMIN)
    changed = await directory.set_mesh(town["bob"], ConnectionPolicy.PREFER_OLDEST, None)
    assert (changed.policy, changed.sends_per_window) == (ConnectionPolicy.PREFER_OLDEST, 5)
    assert await directory.mesh(town.mesh.uid) == changed
    assert await directory.mesh(other.mesh.uid) == other.mesh
