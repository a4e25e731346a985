"""The runbook of an outage: its commands exist, its settings load, its receipt and its drill are what they are."""

import json
import re
import shlex
from pathlib import Path

import click
import pytest

from claudemesh.cli.command import Session
from claudemesh.cli.statehub.edge import edge
from claudemesh.cli.statehub.main import root
from claudemesh.edge.model import STATES
from claudemesh.edge.service import _REASONS, _receipt
from claudemesh.edge.settings import EdgeSettings
from claudemesh.runtime.settings import load
from tests.requirements import REQUIREMENTS

pytestmark = pytest.mark.req("R9")

PAGE = (Path(__file__).parents[2] / "docs/how-to/outage.md").read_text(encoding="utf-8")
CONSOLE = "\n".join(re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL))
TYPED = re.findall(r"^\$ (statehub.*?)(?:\s+#.*)?$", CONSOLE, re.MULTILINE)
NAMED = re.findall(r"`(statehub [a-z][^`]*)`", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL))


def understood(words: list[str]) -> click.Context:
    """Have a command line read, as far as to where it would begin to do something."""
    command: click.Command = edge if words[0] == "statehub-edge" else root
    context = click.Context(command, obj=Session("statehub"))
    rest = words[1:]
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None, name
        command = found
    return command.make_context(words[0], rest, parent=context)


@pytest.mark.parametrize("line", [*TYPED, *NAMED])
def test_every_command_is_understood(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "PATH").mkdir()
    monkeypatch.chdir(tmp_path)
    understood(shlex.split(line))


def test_a_command_that_is_not_there_is_noticed() -> None:
    for line in ("statehub outbox settle X", "statehub outbox resolve X --keep both", "statehub-edge --to X"):
        with pytest.raises(click.ClickException):
            understood(shlex.split(line))


def test_every_verb_of_the_outbox_is_on_the_page() -> None:
    group = root.get_command(click.Context(root), "outbox")
    assert isinstance(group, click.Group)
    verbs = set(group.list_commands(click.Context(group)))
    told = {shlex.split(line)[2] for line in [*TYPED, *NAMED] if line.startswith("statehub outbox ")}
    assert verbs == told
    sentence = next(row.sentence for row in REQUIREMENTS if row.id == "R9")
    assert "outage" in sentence


def test_the_settings_load(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "edge.toml").write_text(shown)
    assert load(EdgeSettings, tmp_path / "edge.toml", {}).require_token


def test_the_receipt_has_the_members_that_a_relay_gives() -> None:
    (shown,) = re.findall(r'^\{"queued".*\}$', PAGE, re.MULTILINE)
    given = json.loads(_receipt(["01J"], "run-42-done", "queued", "unreachable").body)
    assert {**json.loads(shown), "outbox_id": "01J"} == given
    assert list(json.loads(shown)) == list(given)


def test_reasons_and_states_are_those_of_the_relay() -> None:
    for reason in ("online_only", "needs_expectation", "contains_secret"):
        assert f"`{reason}`" in PAGE
        assert reason in _REASONS
    assert set(re.findall(r"--state (\w+)", PAGE)) <= set(STATES)
