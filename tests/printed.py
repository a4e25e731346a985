"""Holds what commands really print with `--json` against the schemas of `claudemesh.cli.documents`.

It costs a test nothing: whatever a command prints in the test's own process is checked as it is printed, and
runners of processes hand in what they read (`check_output`). What does not fit fails the test that saw it. A test
that says `@pytest.mark.prints("claudemesh peer list")` must have seen that document; that every document has such a
test is checked in `tests/docs/test_json_schemas.py`.
"""

import json
from collections.abc import Callable, Generator, Sequence
from functools import cache
from typing import Any

import click
import pytest

from claudemesh.cli.render import Output

PROBLEM = "problem"


class Watch:
    """What the running test has seen, and what of it was wrong."""

    seen: set[str]
    wrong: list[str]

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.seen, self.wrong = set(), []

    def look(self, key: str, document: object) -> None:
        self.seen.add(key)
        self.wrong += [f"{key} --json: {text}" for text in faults(key, document)]


WATCH = Watch()


@cache
def _validator(key: str) -> Any:  # noqa: ANN401 - a validator's class has no public type
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - only where something is printed as JSON

    from claudemesh.cli.documents import PRINTED, Problem, one  # noqa: PLC0415 - as above

    schema = (one(Problem) if key == PROBLEM else PRINTED[key]).schema(key)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def faults(key: str, document: object) -> list[str]:
    """Return what is wrong with a document, in words."""
    return [f"{error.json_path}: {error.message[:300]}" for error in _validator(key).iter_errors(document)]


# --- in the test's own process -------------------------------------------------------------------------


def _said(context: click.Context) -> list[str]:
    """Return the options that were given, and the words, by all their names."""
    found: list[str] = []
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if value not in (None, False, ()):
            found += [*parameter.opts, str(value)]
    return found


def _look(context: click.Context, document: object, *, is_entry: bool) -> None:
    from claudemesh.cli.documents import PRINTED, choose  # noqa: PLC0415 - as above

    command = context.command_path
    is_version = isinstance(document, dict) and document.keys() == {"version"}  # an option that hands nothing on
    key = choose(PRINTED, command, [*_said(context), *(["--version"] if is_version else [])])
    if key is None:
        WATCH.wrong.append(f"{command} --json: this document has no schema: {document!r:.200}")
        return
    if PRINTED[key].is_stream is not is_entry:
        WATCH.wrong.append(f"{key} --json: it is {'no ' * is_entry}stream, and prints another way")
    WATCH.look(key, json.loads(json.dumps(document)))


def _watching(method: Callable[..., None], *, is_entry: bool) -> Callable[..., None]:
    def print_and_look(out: Output, document: object, lines: Any) -> None:  # noqa: ANN401 - as it is given
        context = click.get_current_context(silent=True)
        if out.as_json and context is not None:
            _look(context, document, is_entry=is_entry)
        method(out, document, lines)

    return print_and_look


def _watching_problems(method: Callable[..., None]) -> Callable[..., None]:
    def print_and_look(out: Output, problem: object) -> None:
        if out.as_json:
            WATCH.look(PROBLEM, json.loads(json.dumps(problem)))
        method(out, problem)

    return print_and_look


# --- in processes of their own -------------------------------------------------------------------------


def check_output(program: str, words: Sequence[str], code: int, out: str) -> None:
    """Look at what a process printed that was told `--json`, and how it ended."""
    from claudemesh.cli.documents import PRINTED, choose  # noqa: PLC0415 - as above

    command = _command(program, words)
    key = choose(PRINTED, command, ["--follow" if word == "-f" else word for word in words])
    assert key is not None, f"{command} has no schema"
    for line in out.splitlines():
        document = json.loads(line)
        is_problem = code != 0 and isinstance(document, dict) and {"code", "retry", "title"} <= document.keys()
        WATCH.look(PROBLEM if is_problem else key, document)


def _command(program: str, words: Sequence[str]) -> str:
    """Return a command's own words; options may stand between them."""
    from claudemesh.cli.documents import PRINTED  # noqa: PLC0415 - as above

    path = program
    for word in words:
        if any(key == f"{path} {word}" or key.startswith(f"{path} {word} ") for key in PRINTED):
            path = f"{path} {word}"
    return path


# --- the plugin ----------------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "prints(*commands): the commands whose documents this test must have seen")
    Output.document = _watching(Output.document, is_entry=False)  # type: ignore[method-assign]
    Output.entry = _watching(Output.entry, is_entry=True)  # type: ignore[method-assign]
    Output.problem = _watching_problems(Output.problem)  # type: ignore[method-assign]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    WATCH.begin()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    result = yield
    wrong = "\n".join(WATCH.wrong)
    assert not wrong, wrong
    promised = {key for marker in item.iter_markers("prints") for key in marker.args}
    assert promised <= WATCH.seen, f"not printed by this test: {sorted(promised - WATCH.seen)}"
    return result
