"""Every command has a schema of what it prints, every schema a command, and every document a test that saw it."""

import json
from collections.abc import Iterable

import click
import pytest
from jsonschema import Draft202012Validator

from claudemesh.cli.documents import PRINTED, Printed, Problem, one, silent
from claudemesh.kernel.errors import MeshError
from claudemesh.wire import problem
from tests.faults.collect import collect
from tests.printed import PROBLEM, faults
from tools.command_tree import PROGRAMS, leaves
from tools.examples import document_of, example_of
from tools.json_page import schemas

DOCUMENTS = [key for key, printed in PRINTED.items() if printed.types]


def misfits(commands: dict[str, click.Command], printed: Iterable[str]) -> list[str]:
    """Everything that has no counterpart: commands without a schema, schemas without a command."""
    known = list(printed)
    missing = [f"{path} has no schema" for path in commands if path not in known]
    return [*missing, *(f"there is no `{key}`" for key in known if not _is_command(commands, key))]


def _is_command(commands: dict[str, click.Command], key: str) -> bool:
    path = max((path for path in (*commands, *PROGRAMS) if f"{key} ".startswith(f"{path} ")), key=len, default="")
    more = key.removeprefix(path).strip()
    found = commands.get(path) or PROGRAMS.get(path)
    return found is not None and ((not more and path in commands) or more in _words(found))


def _words(command: click.Command) -> set[str]:
    """Return what may be said to a command: its options, and the words of its choices."""
    choices = [one.type.choices for one in command.params if isinstance(one.type, click.Choice)]
    options = [one.opts for one in command.params if isinstance(one, click.Option)]
    return {str(word) for words in (*options, *choices) for word in words}


@pytest.mark.req("C1")
def test_every_command_has_a_schema_and_every_schema_a_command() -> None:
    assert misfits(leaves(), PRINTED) == []


@pytest.mark.parametrize(
    ("printed", "wrong"),
    [
        ({"a b": 0, "a b --follow": 0, "a b x": 0}, []),
        ({}, ["a b has no schema"]),
        ({"a b": 0, "a c": 0}, ["there is no `a c`"]),
        ({"a b": 0, "a b --fallow": 0}, ["there is no `a b --fallow`"]),
    ],
)
def test_what_has_no_counterpart_is_reported(printed: dict[str, int], wrong: list[str]) -> None:
    options = [click.Option(["--follow"]), click.Argument(["kind"], type=click.Choice(["x"]))]
    assert misfits({"a b": click.Command("b", params=options)}, printed) == wrong


@pytest.mark.req("C1")
def test_every_document_was_seen_by_a_test_that_says_so() -> None:
    shown = {key for keys in collect(of="prints").values() for key in keys}
    assert sorted(shown - {*DOCUMENTS, PROBLEM}) == [], "no such documents"
    assert sorted({*DOCUMENTS, PROBLEM} - shown) == [], "mark the test that shows it: @pytest.mark.prints(…)"


@pytest.mark.parametrize("key", DOCUMENTS)
def test_its_example_is_one(key: str) -> None:
    assert faults(key, example_of(PRINTED[key])) == []


def test_every_schema_is_one_and_allows_more_than_it_requires() -> None:
    for name, text in schemas().items():
        schema = json.loads(text)
        Draft202012Validator.check_schema(schema)
        assert 'additionalProperties": false' not in text, name


@pytest.mark.req("C1")
@pytest.mark.parametrize("error", list(MeshError.family()), ids=lambda error: error.code)
def test_every_error_is_a_problem(error: type[MeshError]) -> None:
    assert faults(PROBLEM, problem.render(problem.parse(error.status, {"code": error.code}))) == []


# --- the shapes that callers may rely on, as the contract has them ---------------------------------------

RELIED_ON = {
    "claudemesh send": ["client_message_id", "status"],
    "claudemesh mesh invite": ["code"],
    "claudemesh trace": ["client_message_id", "state", ("steps", ["state", "at", "evidence"])],
    "claudemesh peer list": [("peers", ["name", "pubkey", "status"])],
    "claudemesh daemon outbox list": [
        ("rows", ["id", "client_message_id", "status", "attempts", "last_error"])
    ],
    "claudemesh inbox": ["next_cursor", ("messages", [
        "client_message_id", "broker_message_id", "history_id", "from", "from_name", "topic", "body", "meta",
        "received_at", "reply_to_id",
    ])],
    "claudemesh broker check": ["violations", ("items", ["client_message_id", "sender", "missing"])],
    "claudemesh pipeline run orphans": ["violations", ("items", ["client_message_id", "sender", "missing"])],
    "claudemesh queue work": [
        "client_message_id", "broker_message_id", "from", "body", "lease_token", "lease_expires_at",
    ],
}  # fmt: skip


@pytest.mark.req("C1")
@pytest.mark.parametrize("key", RELIED_ON)
def test_the_shapes_of_the_contract_are_required(key: str) -> None:
    document = example_of(PRINTED[key]) | {
        part[0]: [document_of(_item(PRINTED[key], part[0]))] for part in RELIED_ON[key] if isinstance(part, tuple)
    }
    assert faults(key, document) == []
    for part in RELIED_ON[key]:
        name, below = part if isinstance(part, tuple) else (part, [])
        assert faults(key, {member: value for member, value in document.items() if member != name})
        for member in below:
            less = [{one: value for one, value in entry.items() if one != member} for entry in document[name]]
            assert faults(key, document | {name: less}), (name, member)


def _item(printed: Printed, name: str) -> type:
    return printed.types[0].__annotations__[name].__args__[0]


def test_a_command_may_be_without_a_document() -> None:
    assert silent("it speaks another language").types == ()
    assert one(Problem).types == (Problem,)
