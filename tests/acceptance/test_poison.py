"""What no store could keep is refused at the door, in the same words on both stores; its neighbours are taken."""

import json
from pathlib import Path
from typing import Any

import pytest

from claudemesh.kernel.fingerprint import Kind, SendRequest, fingerprint_send
from tests.integration.broker_client import Peer, Refused, Wire, broker, create_mesh, dm, join
from tests.integration.broker_client import opened as opened_socket

NO_FINGERPRINT = "0" * 64


def raw_item(id_: str, to: Peer, **changes: str) -> str:
    """Return a message as JSON text; a change is JSON text too, which need not be anything that Python can hold."""
    fields = {
        "client_message_id": json.dumps(id_),
        "kind": '"dm"',
        "ref": json.dumps(to.keys.pubkey),
        "body": '"hi"',
        "fingerprint": f'"{NO_FINGERPRINT}"',
    } | changes
    return "{" + ", ".join(f'"{name}": {value}' for name, value in fields.items()) + "}"


POISON = {
    "NUL in the body": {"body": '"a\\u0000b"'},
    "lone surrogate in the body": {"body": '"a\\ud800b"'},
    "NUL in the destination": {"ref": '"a\\u0000b"'},
    "lone surrogate in the destination": {"ref": '"\\udfff"'},
    "NUL in the id": {"client_message_id": '"a\\u0000b"'},
    "an id of 129 characters": {"client_message_id": json.dumps("x" * 129)},
    "NUL in reply_to": {"reply_to": '"\\u0000"'},
    "lone surrogate in reply_to": {"reply_to": '"\\ud800"'},
    "NUL in a value of meta": {"meta": '{"k": "\\u0000"}'},
    "NUL in a name of meta": {"meta": '{"\\u0000": 1}'},
    "lone surrogate in meta": {"meta": '{"k": ["\\ud800"]}'},
    "NUL in a mention": {"meta": '{"mentions": ["\\u0000"]}'},
    "a mention longer than an index takes": {"meta": json.dumps({"mentions": ["x" * 129]})},
    "NaN": {"meta": '{"n": NaN}'},
    "a number beyond every double": {"meta": '{"n": 1e400}'},
    "an integer beyond every column": {"meta": '{"n": 123456789012345678901234567890}'},
    "a sequence number beyond 64 bits": {"sender_seq": "9223372036854775808"},
    "a meta of more than its size": {"meta": json.dumps({"k": "x" * 70_000})},
    "meta nested deeper than anybody means": {"meta": '{"k": ' + "[" * 500 + "]" * 500 + "}"},
}


async def send_raw(wire: Wire, n: int, *items: str) -> Any:  # noqa: ANN401  JSON
    await wire.socket.send(f'{{"type": "send", "n": {n}, "items": [{", ".join(items)}]}}')
    while True:
        frame = json.loads(await wire.socket.recv())
        if frame["type"] == "send_result":
            return frame["outcomes"]


def in_short(outcome: dict[str, Any]) -> tuple[Any, ...]:
    problem = outcome.get("error") or {}
    return outcome["status"], problem.get("code"), problem.get("detail")


@pytest.fixture
async def answers_on_both(tmp_path: Path, postgres_database: str) -> list[dict[str, Any]]:
    """Return what each store's broker answers to all of it, one bad message between two good ones."""
    found = []
    for store in (f"sqlite:///{tmp_path / 'broker.db'}", postgres_database):
        async with broker(tmp_path, store=store) as running:
            alice = await create_mesh(running, name="alice")
            bob = await join(alice, "bob")
            async with alice.connected() as wire:
                answers = {}
                for number, (name, poison) in enumerate(POISON.items()):
                    good = []
                    for place in ("before", "behind"):
                        request = SendRequest(kind=Kind.DM, ref=bob.keys.pubkey, body="hi")
                        fingerprint = json.dumps(fingerprint_send(request).hex())
                        good.append(raw_item(f"{place}-{number}", bob, fingerprint=fingerprint))
                    outcomes = await send_raw(wire, number, good[0], raw_item("bad", bob, **poison), good[1])
                    answers[name] = [in_short(outcome) for outcome in outcomes]
                found.append(answers)
    return found


@pytest.mark.req("B5", "B1")
async def test_what_no_store_could_keep_is_refused_alike_and_its_neighbours_are_taken(
    answers_on_both: list[dict[str, Any]],
) -> None:
    on_sqlite, on_postgres = answers_on_both
    assert on_sqlite == on_postgres
    for name, (before, bad, behind) in on_postgres.items():
        assert (before[0], behind[0]) == (201, 201), name
        assert bad[0] in (400, 413), (name, bad)


CALLS = [
    ("topic.create", {"name": "a\x00b"}),
    ("topic.subscribe", {"name": "\x00"}),
    ("queue.create", {"name": "x" * 1000}),
    ("queue.work", {"name": "\x00"}),
    ("queue.ack", {"name": "q", "id": "\x00", "token": 1}),
    ("queue.ack", {"name": "q", "id": "x", "token": 2**63}),
    ("profile", {"about": "\x00"}),
    ("member.revoke", {"member": "\x00"}),
    ("member.role", {"member": "nobody\x00", "role": "admin"}),
    ("receipts", {"ids": ["\x00"]}),
    ("receipts", {"broker_message_ids": ["\x00"]}),
    ("read", {"broker_message_ids": ["\x00"]}),
    ("resolve", {"pubkeys": ["\x00"]}),
    ("trace", {"id": "\x00"}),
    ("replay", {"after_history_id": 2**63}),
    ("replay", {"after_history_id": -1}),
    ("retire", {"client_message_id": "\x00", "fingerprint": NO_FINGERPRINT}),
    ("mesh.set", {"sends_per_window": 2**63}),
]


@pytest.mark.req("B5")
async def test_calls_that_no_store_could_answer_are_refused_alike(tmp_path: Path, postgres_database: str) -> None:
    found = []
    for store in (f"sqlite:///{tmp_path / 'broker.db'}", postgres_database):
        async with broker(tmp_path, store=store) as running:
            alice = await create_mesh(running, name="alice")
            async with alice.connected() as wire:
                answers = []
                for op, args in CALLS:
                    with pytest.raises(Refused) as refused:
                        await wire.call(op, **args)
                    answers.append((op, refused.value.code))
                assert (await wire.send(dm("after", alice)))[0].status == 201
            found.append(answers)
    assert found[0] == found[1]
    assert all(code != "internal_error" for _, code in found[0])


@pytest.mark.req("N3")
async def test_a_hello_with_poison_is_refused_alike(tmp_path: Path, postgres_database: str) -> None:
    found = []
    for store in (f"sqlite:///{tmp_path / 'broker.db'}", postgres_database):
        async with broker(tmp_path, store=store) as running:
            alice = await create_mesh(running, name="alice")
            closed = []
            for changes in ({"mesh_id": "\x00"}, {"member_pubkey": "\x00" * 64}, {"instance_id": "a\x00b"}):
                async with opened_socket(running) as wire:
                    await wire.say(alice.hello(wire.nonce, signature="0" * 128, **changes))
                    closed.append(await wire.closed())
            found.append(closed)
    assert found[0] == found[1]
    assert all(code in (4400, 4401) for code, _ in found[0])
