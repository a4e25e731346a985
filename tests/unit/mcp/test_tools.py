"""The table of tools: few, described, and alike in what they promise; and how a call fails."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from claudemesh.kernel.errors import InvalidRequest
from claudemesh.mcp import arguments, resources, results
from claudemesh.mcp.parts import Parts, open_parts
from claudemesh.mcp.schemas import describe
from claudemesh.mcp.tools import TOOLS, Tool, call
from claudemesh.runtime.home import Home
from claudemesh.runtime.observe import Observer
from claudemesh.runtime.world import real_world
from tests.unit.mcp.conftest import Use

NAMES = "send inbox ack peers status trace requeue claim complete write conflicts topics"
READING = "inbox peers status trace"
WITHIN_S = 20  # less than a call that needs the daemon has


@pytest.mark.req("C3")
def test_there_are_twelve_tools_and_no_more() -> None:
    assert [*TOOLS] == NAMES.split()
    assert [name for name, tool in TOOLS.items() if tool.reads_only] == READING.split()
    assert [name for name, tool in TOOLS.items() if tool.destroys] == ["requeue", "write", "conflicts"]
    assert [name for name, tool in TOOLS.items() if tool.repeats] == ["send", "claim", "write"]


@pytest.mark.req("C3")
@pytest.mark.parametrize("tool", TOOLS.values(), ids=[*TOOLS])
def test_whatever_changes_something_takes_a_key_and_says_whether_it_replayed(tool: Tool) -> None:
    taken, told = describe(tool.arguments)["properties"], describe(tool.result)["properties"]
    assert ("idempotency_key" in taken) is not tool.reads_only
    assert ("replayed" in told) is not tool.reads_only
    assert "unread" in told


@pytest.mark.parametrize("tool", TOOLS.values(), ids=[*TOOLS])
def test_schemas_are_objects_that_any_client_can_check_against(tool: Tool) -> None:
    for schema in (describe(tool.arguments), describe(tool.result)):
        assert schema["type"] == "object"
        jsonschema.Draft202012Validator.check_schema(schema)
    assert describe(tool.arguments)["additionalProperties"] is False


def test_states_are_told_apart_in_words() -> None:
    sentences = [*results.STATES.values(), *results.WRITES.values()]
    assert len({*sentences}) == len(sentences)
    assert {"queued", "accepted", "delivered", "read", "acted", "dead"} <= {*results.STATES}
    for word in ("queued", "sending", "conflict"):
        assert not results.WRITES[word].startswith("Done")


def test_others_texts_are_called_data_wherever_they_are_shown() -> None:
    for name in ("inbox", "claim"):
        assert results.UNTRUSTED in TOOLS[name].description
    assert results.Messages(messages=[], next_cursor=None).note == results.UNTRUSTED


# --- how a call fails ----------------------------------------------------------------------------------

BAD: list[tuple[str, dict[str, Any], str]] = [
    ("send", {"to": "bob"}, "message"),
    ("send", {"to": "bob", "message": "x", "nonsense": 1}, "nonsense"),
    ("send", {"to": "bob", "message": "x", "idempotency_key": "no space"}, "idempotency_key"),
    ("send", {"to": "bob", "message": "x", "idempotency_key": "k\n"}, "idempotency_key"),
    ("send", {"to": "bob", "message": "x", "timeout_s": 1e9, "wait": "read"}, "timeout_s"),
    ("inbox", {"limit": 51}, "limit"),
    ("ack", {"ids": []}, "ids"),
    ("claim", {"source": "work"}, "source"),
    ("complete", {"source": "queue:a", "id": "x", "token": -1}, "token"),
    ("conflicts", {"keep": "both"}, "keep"),
    ("conflicts", {"cursor": "9" * 5_000}, "cursor"),  # more digits than Python reads
    ("status", {"cursor": "x" * 300_000}, "cursor"),  # longer than any request line
    ("write", {"path": "http://elsewhere/"}, "path"),
]


@pytest.mark.req("C3")
@pytest.mark.parametrize(("tool", "given", "at_fault"), BAD)
async def test_arguments_that_are_wrong_are_refused_by_name(
    use: Use, tool: str, given: dict[str, Any], at_fault: str
) -> None:
    answer = await use(tool, **given)
    assert (answer.is_error, answer.data["code"], answer.data["retry"]) == (True, "invalid_request", "no")
    assert at_fault in answer.data["detail"]


@pytest.mark.req("C3")
@pytest.mark.parametrize("place", ["inbox", "peers", "outbox", "conflicts", "ledger/run", "ledger/run/job"])
async def test_a_cursor_that_no_list_gave_is_refused_by_every_resource(parts: Parts, place: str) -> None:
    with pytest.raises(InvalidRequest):
        await resources.read(parts, f"claudemesh://{place}?cursor={'x' * 300_000}")


@pytest.mark.req("C3")
async def test_without_a_mesh_every_tool_answers_and_names_what_to_do(use: Use) -> None:
    answer = await use("send", to="bob", message="hello")
    assert (answer.is_error, answer.data["code"], answer.data["unread"]) == (True, "no_daemon", None)
    assert "`claudemesh mesh create`" in answer.text
    assert "`claudemesh daemon up`" in answer.text
    assert "\n" not in answer.text
    status = await use("status")
    assert (status.is_error, status.data["nothing_waits"], status.data["daemon"]["is_running"]) == (
        False,
        False,
        False,
    )
    assert "`claudemesh daemon up`" in status.data["why"][0]


@pytest.mark.req("C3")
async def test_a_fault_of_our_own_is_one_sentence_without_a_traceback(parts: Parts) -> None:
    async def fail(_: Parts, __: arguments.Arguments) -> results.Told:
        raise RuntimeError("hunter2")

    for name, given in (("peers", {}), ("ack", {"ids": ["M1"]})):
        answer = await call(parts, replace(TOOLS[name], run=fail), given, Observer())
        assert (answer.is_error, answer.data["code"]) == (True, "internal_error")
        assert "hunter2" not in answer.text + str(answer.data)
        assert ("idempotency_key" in answer.data) is (name == "ack"), "under which to ask again"


@pytest.mark.req("C3")
async def test_in_a_home_that_cannot_be_looked_into_every_tool_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLAUDEMESH_MESH", raising=False)
    parts = open_parts(Home(tmp_path / ("x" * 300)), None, real_world())
    for name, given in (("peers", {}), ("ack", {"ids": ["M1"]})):
        answer = await call(parts, TOOLS[name], given, Observer())
        assert (answer.is_error, answer.data["code"], answer.data["unread"]) == (True, "config_invalid", None)
    status = await call(parts, TOOLS["status"], {}, Observer())
    told = status.data
    assert (status.is_error, told["daemon"]["is_running"], told["relay"]["is_known"]) == (False, False, False)


async def test_an_error_names_the_key_so_that_it_can_be_asked_again(use: Use) -> None:
    answer = await use("write", path="/progress/", body={})
    assert (answer.data["code"], answer.data["retry"]) == ("dependency_failed", "same_id")
    assert answer.data["idempotency_key"] in answer.text
    assert "statehub-edge" in answer.text
    sent = await use("send", to="bob", message="x")
    assert (sent.is_error, f"idempotency_key={sent.data['idempotency_key']}" in sent.text) == (True, True)


@pytest.mark.req("C3")
async def test_a_daemon_that_hangs_keeps_no_answer_that_needs_none(use: Use, parts: Parts) -> None:
    mesh = parts.home.mesh_dir("demo")
    mesh.mkdir(parents=True)
    (mesh / "membership.json").write_text("{}")
    asked = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(hang, mesh / "sock"), asyncio.timeout(WITHIN_S):
        answer = await use("conflicts")
        assert (answer.is_error, answer.data["conflicts"], answer.data["unread"]) == (False, [], None)
        refused = await use("complete", source="ledger:none", id="x", token=1)
        assert (refused.is_error, refused.data["unread"]) == (True, None)
    assert asked.is_set()
