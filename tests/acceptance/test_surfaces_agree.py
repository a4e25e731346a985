"""One story, told through each surface: raw HTTP, the SDK, the command line, MCP. What it comes to is the same.

Each surface is asked in its own way, and its answers are put into one form: words of the contract, and nothing that
differs from run to run. To add a surface: a class with these methods, and a line in `SURFACES`.
"""

import json
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import pytest

from claudemesh import AsyncMesh
from claudemesh.kernel.errors import MeshError
from tests.acceptance.in_process import claudemesh
from tests.integration.mcp_client import ERAS, inside
from tests.mesh import Answer, LocalDaemon, local_mesh

Told = dict[str, Any]

REFUSED = ("code", "conflict", "fingerprint_prefix", "retry")
MESSAGE = ("client_message_id", "broker_message_id", "from_name", "topic", "body", "meta", "reply_to_id")


class Surface(Protocol):
    """What an agent does, asked of one surface. A refusal is told, not raised."""

    def __init__(self, daemon: LocalDaemon) -> None: ...

    def close(self) -> None: ...

    async def send(self, to: str, text: str, id_: str, meta: Told | None = None) -> Told: ...

    async def inbox(self) -> list[Told]: ...

    async def mark_read(self, broker_message_id: str) -> None: ...

    async def trace(self, any_id: str) -> tuple[str, list[str]]: ...

    async def peers(self) -> set[str]: ...

    async def make_queue(self, name: str) -> None: ...

    async def work(self, name: str) -> str | None:
        """Lease a message and ack it; return its body."""

    async def lose(self, name: str) -> Told:
        """Lease a message, give it back, and ack it all the same."""


def part(whole: Told, names: tuple[str, ...]) -> Told:
    return {name: whole.get(name) for name in names}


def sent(answer: Told) -> Told:
    return part({"duplicate": False} | answer, ("client_message_id", "status", "duplicate"))


def lived(life: Told) -> tuple[str, list[str]]:
    return life["state"], [step["state"] for step in life["steps"]]


class Http:
    def __init__(self, daemon: LocalDaemon) -> None:
        self._daemon = daemon

    def close(self) -> None:
        """Do nothing: each request has its own connection."""

    async def _post(self, path: str, body: Told) -> Any:  # noqa: ANN401  JSON
        answer: Answer = await self._daemon.post(path, body)
        assert answer.status == 200, answer
        return answer.body

    async def send(self, to: str, text: str, id_: str, meta: Told | None = None) -> Told:
        answer = await self._daemon.send(to, text, client_message_id=id_, meta=meta)
        return part(answer.body, REFUSED) if answer.status >= 400 else sent(answer.body)

    async def inbox(self) -> list[Told]:
        return [part(message, MESSAGE) for message in await self._daemon.inbox()]

    async def mark_read(self, broker_message_id: str) -> None:
        await self._post("/v1/inbox/read", {"ids": [broker_message_id]})

    async def trace(self, any_id: str) -> tuple[str, list[str]]:
        return lived(await self._daemon.get(f"/v1/trace/{any_id}"))

    async def peers(self) -> set[str]:
        return {peer["name"] for peer in (await self._daemon.get("/v1/peers"))["peers"]}

    async def make_queue(self, name: str) -> None:
        await self._post("/v1/queue/create", {"queue": name})

    async def work(self, name: str) -> str | None:
        leased = await self._post("/v1/queue/work", {"queue": name})
        if leased is None:
            return None
        await self._post("/v1/queue/ack", _claim(name, leased))
        return str(leased["body"])

    async def lose(self, name: str) -> Told:
        claim = _claim(name, await self._post("/v1/queue/work", {"queue": name}))
        await self._post("/v1/queue/nack", claim)
        return part((await self._daemon.post("/v1/queue/ack", claim)).body, REFUSED)


def _claim(name: str, leased: Told) -> Told:
    return {"queue": name, "id": leased["broker_message_id"], "token": leased["lease_token"]}


class Sdk:
    def __init__(self, daemon: LocalDaemon) -> None:
        self._mesh = AsyncMesh("demo", home=daemon.state_dir.parent.parent)

    def close(self) -> None:
        self._mesh.close()

    async def send(self, to: str, text: str, id_: str, meta: Told | None = None) -> Told:
        try:
            receipt = await self._mesh.send(to, text, id=id_, meta=meta)
        except MeshError as error:
            return _raised(error)
        return {
            "client_message_id": receipt.client_message_id,
            "status": receipt.status,
            "duplicate": receipt.duplicate,
        }

    async def inbox(self) -> list[Told]:
        return [
            {name: getattr(message, name) for name in MESSAGE} | {"meta": dict(message.meta) or None}
            async for message in self._mesh.inbox()
        ]

    async def mark_read(self, broker_message_id: str) -> None:
        await self._mesh.mark_read([broker_message_id])

    async def trace(self, any_id: str) -> tuple[str, list[str]]:
        life = await self._mesh.trace(any_id)
        return life.state, [step.state for step in life.steps]

    async def peers(self) -> set[str]:
        return {peer.name for peer in await self._mesh.peers()}

    async def make_queue(self, name: str) -> None:
        await self._mesh.queue(name).create()

    async def work(self, name: str) -> str | None:
        leased = await self._mesh.queue(name).work()
        if leased is None:
            return None
        await leased.ack()
        return leased.body

    async def lose(self, name: str) -> Told:
        leased = await self._mesh.queue(name).work()
        assert leased is not None
        await leased.nack()
        with pytest.raises(MeshError) as raised:
            await leased.ack()
        return _raised(raised.value)


def _raised(error: MeshError) -> Told:
    return part({"code": error.code, "retry": error.retry} | dict(error.extras), REFUSED)


class CommandLine:
    def __init__(self, daemon: LocalDaemon) -> None:
        self._daemon = daemon

    def close(self) -> None:
        """Do nothing: each command is a run of its own."""

    async def _ask(self, *words: str, code: int = 0) -> Any:  # noqa: ANN401  JSON
        ran = await claudemesh(self._daemon, *words)
        assert ran.code == code, (words, ran)
        return ran.json

    async def send(self, to: str, text: str, id_: str, meta: Told | None = None) -> Told:
        words = ["send", to, text, "--id", id_, *(["--meta", json.dumps(meta)] if meta else [])]
        ran = await claudemesh(self._daemon, *words)
        return sent(ran.json) if ran.code == 0 else part(ran.json, REFUSED)

    async def inbox(self) -> list[Told]:
        return [part(message, MESSAGE) for message in (await self._ask("inbox"))["messages"]]

    async def mark_read(self, broker_message_id: str) -> None:
        shown = (await self._ask("inbox", "--mark-read"))["messages"]
        assert [message["broker_message_id"] for message in shown] == [broker_message_id]

    async def trace(self, any_id: str) -> tuple[str, list[str]]:
        return lived(await self._ask("trace", any_id))

    async def peers(self) -> set[str]:
        return {peer["name"] for peer in (await self._ask("peer", "list"))["peers"]}

    async def make_queue(self, name: str) -> None:
        await self._ask("queue", "create", name)

    async def work(self, name: str) -> str | None:
        leased = await self._ask("queue", "work", name)
        if leased is None:
            return None
        await self._ask("queue", "ack", name, *_lease(leased))
        return str(leased["body"])

    async def lose(self, name: str) -> Told:
        lease = _lease(await self._ask("queue", "work", name))
        await self._ask("queue", "nack", name, *lease)
        return part(await self._ask("queue", "ack", name, *lease, code=4), REFUSED)


def _lease(leased: Told) -> tuple[str, ...]:
    return "--id", leased["broker_message_id"], "--token", str(leased["lease_token"])


class Mcp:
    def __init__(self, daemon: LocalDaemon) -> None:
        self._home = daemon.state_dir.parent.parent

    def close(self) -> None:
        """Do nothing: each call has a server of its own."""

    async def _use(self, tool: str, **arguments: Any) -> Told:  # noqa: ANN401  JSON
        async with inside(self._home, ERAS[-1]) as agent:
            return await agent.use(tool, **arguments)

    async def send(self, to: str, text: str, id_: str, meta: Told | None = None) -> Told:
        said = {"to": to, "message": text, "idempotency_key": id_, "meta": meta}
        async with inside(self._home, ERAS[-1]) as agent:
            result = await agent.client.call_tool("send", said)
            if result.is_error:
                return part(await agent.fail("send", **said), REFUSED)
        told = result.structured_content
        assert isinstance(told, dict)
        return {
            "client_message_id": told["idempotency_key"],
            "status": told["state"],
            "duplicate": told["replayed"],
        }

    async def inbox(self) -> list[Told]:
        found = await self._use("inbox")
        lives = [await self._use("trace", id=message["id"]) for message in found["messages"]]
        return [
            part(message, MESSAGE)
            | {
                "client_message_id": life["client_message_id"],
                "broker_message_id": message["id"],
                "from_name": message["sender_name"],
                "reply_to_id": message["reply_to"],
            }
            for message, life in zip(found["messages"], lives, strict=True)
        ]

    async def mark_read(self, broker_message_id: str) -> None:
        assert (await self._use("ack", ids=[broker_message_id]))["marked"] == 1

    async def trace(self, any_id: str) -> tuple[str, list[str]]:
        return lived(await self._use("trace", id=any_id))

    async def peers(self) -> set[str]:
        return {peer["name"] for peer in (await self._use("peers"))["peers"]}

    async def make_queue(self, name: str) -> None:
        await self._use("topics", action="create", name=f"queue:{name}")

    async def work(self, name: str) -> str | None:
        leased = (await self._use("claim", source=f"queue:{name}"))["work"]
        if leased is None:
            return None
        await self._use("complete", source=f"queue:{name}", id=leased["id"], token=leased["token"])
        return str(leased["body"])

    async def lose(self, name: str) -> Told:
        leased = (await self._use("claim", source=f"queue:{name}"))["work"]
        claim = {"source": f"queue:{name}", "id": leased["id"], "token": leased["token"]}
        await self._use("complete", **claim, outcome="give_back")
        async with inside(self._home, ERAS[-1]) as agent:
            return part(await agent.fail("complete", **claim), REFUSED)


SURFACES: dict[str, type[Surface]] = {"http": Http, "sdk": Sdk, "cli": CommandLine, "mcp": Mcp}


async def tell(surface: Surface, name: str, me: LocalDaemon, bob: LocalDaemon) -> Told:
    """Live the story through a surface, and return what it came to. Beside it, both sides are asked raw."""
    story: Told = {"first": await surface.send("bob", "hello", "m1", {"n": 1})}
    life = await me.until(lambda found: found["state"] == "delivered", "/v1/trace/m1")
    story["again"] = await surface.send("bob", "hello", "m1", {"n": 1})
    story["other body"] = await surface.send("bob", "hello?", "m1", {"n": 1})
    story["nobody"] = await surface.send("nobody", "hello", "m2")

    assert (await bob.send(name, "hello yourself", reply_to_id=life["broker_message_id"])).status == 202
    await me.receives(1)
    [reply] = await surface.inbox()
    story["reply"] = reply | {
        "client_message_id": bool(reply["client_message_id"]),
        "broker_message_id": bool(reply["broker_message_id"]),
        "reply_to_id": reply["reply_to_id"] == life["broker_message_id"],
    }
    await surface.mark_read(reply["broker_message_id"])
    await bob.until(lambda found: found["state"] == "read", f"/v1/trace/{reply['client_message_id']}")
    story["life"] = await surface.trace("m1")
    story["peers"] = await surface.peers()

    await surface.make_queue(f"of-{name}")
    story["empty"] = await surface.work(f"of-{name}")
    await surface.send(f"queue:of-{name}", "do this", "m3")
    await me.until(lambda found: found["state"] == "accepted", "/v1/trace/m3")
    story["lost"] = await surface.lose(f"of-{name}")
    story["work"] = await surface.work(f"of-{name}")
    return story


@pytest.mark.req("C1", "C3")
async def test_one_story_has_one_outcome_whatever_surface_it_is_told_through(tmp_path: Path) -> None:
    async with local_mesh(tmp_path, *SURFACES, "bob") as (_, *daemons):
        bob = daemons.pop()
        stories: Told = {}
        for (name, make), me in zip(SURFACES.items(), daemons, strict=True):
            with closing(make(me)) as surface:
                stories[name] = await tell(surface, name, me, bob)
    story = stories["http"]
    assert story == {
        "first": {"client_message_id": "m1", "status": "queued", "duplicate": False},
        "again": {"client_message_id": "m1", "status": "accepted", "duplicate": True},
        "other body": {
            "code": "idempotency_key_reused",
            "conflict": "outbox_done_fingerprint_mismatch",
            "fingerprint_prefix": story["other body"]["fingerprint_prefix"],
            "retry": "no",
        },
        "nobody": {"code": "unknown_destination", "conflict": None, "fingerprint_prefix": None, "retry": "no"},
        "reply": {
            "client_message_id": True,
            "broker_message_id": True,
            "from_name": "bob",
            "topic": None,
            "body": "hello yourself",
            "meta": None,
            "reply_to_id": True,
        },
        "life": ("acted", ["queued", "accepted", "delivered", "acted"]),  # for bob replied to it
        "peers": {*SURFACES, "bob"},
        "empty": None,
        "lost": {"code": "lease_lost", "conflict": None, "fingerprint_prefix": None, "retry": "no"},
        "work": "do this",
    }
    for name, other in stories.items():
        assert other == story, name
