"""The threat model: attackers have answers, answers have tests that exist, defaults are those of the code."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from claudemesh.broker.settings import BrokerSettings
from claudemesh.cli.main import main
from claudemesh.daemon.settings import Config
from claudemesh.edge.settings import EdgeSettings
from claudemesh.hub.settings import HubSettings
from claudemesh.runtime.home import CI_VARIABLES, Surroundings, read_surroundings

pytestmark = pytest.mark.req("T1")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanation/threat-model.md").read_text(encoding="utf-8")
SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
ATTACKERS = {
    "a": "web page",
    "b": "Another user",
    "c": "hostile member",
    "d": "Hostile text",
    "e": "network",
    "f": "malicious repository",
    "g": "Another tenant",
    "h": "yesterday's backup",
}
CITED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def section(title: str) -> str:
    """Return what stands under a heading of the second level."""
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """Return the rows of all tables, without their heads."""
    tables = re.findall(r"^\|.*\n\|[-|]+\n((?:\|.*\n)+)", f"{text}\n", re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for rows in tables for row in rows.splitlines()]


@cache
def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


# --- who attacks ---------------------------------------------------------------------------------------


def test_every_class_of_attackers_is_named_and_every_answer_to_it_has_its_tests() -> None:
    parts = re.split(r"^### \((\w)\) ", section("Who attacks"), flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert list(found) == list(ATTACKERS)
    for letter, text in found.items():
        assert ATTACKERS[letter] in text.splitlines()[0]
        answers = re.findall(r"^- .*(?:\n  .*)*", text, re.MULTILINE)
        assert answers
        assert [answer for answer in answers if not CITED.search(answer)] == []


def test_every_test_that_the_page_cites_exists() -> None:
    cited = CITED.findall(PAGE)
    assert len(cited) > 50
    assert [f"{path}::{name}" for path, name in cited if name not in functions_of(path)] == []


def test_what_is_out_of_scope_and_what_is_open_is_said() -> None:
    for text in ("Root on the host", "stolen key", "end to end", "disk that lies"):
        assert text in section("Out of scope")
    assert section("Gaps, known and open").count("\n- ") >= 5
    assert "docs/explanation/threat-model.md" in SECURITY


# --- the defaults --------------------------------------------------------------------------------------


def said(around: Surroundings) -> list[str]:
    """Say of a place what the page says of it."""
    return [
        "in memory, gone at its end" if around.ephemeral else "kept",
        "the socket and 127.0.0.1 with a token" if around.tcp else "the socket",
        "on" if around.hooks else "off",
    ]


def test_the_page_has_the_defaults_of_every_place_that_a_daemon_runs_in(tmp_path: Path) -> None:
    ci, container, elsewhere = rows(section("The defaults"))[:3]
    assert set(re.findall(r"`(\w+)`", ci[0])) == set(CI_VARIABLES)
    for variable in CI_VARIABLES:
        assert said(read_surroundings({variable: "true"}, str(tmp_path))) == ci[1:]
    assert said(read_surroundings({}, str(tmp_path))) == elsewhere[1:]
    (tmp_path / ".dockerenv").write_text("")
    (tmp_path / "run").mkdir()
    marks = [read_surroundings({"KUBERNETES_SERVICE_HOST": "x"}), read_surroundings({"RUNPOD_POD_ID": "x"})]
    marks.append(read_surroundings({}, str(tmp_path)))
    (tmp_path / ".dockerenv").rename(tmp_path / "run" / ".containerenv")
    marks.append(read_surroundings({}, str(tmp_path)))
    assert {mark.container for mark in marks} == set(re.findall(r"`(\w+)`", container[0]))
    assert [said(mark) for mark in marks] == [container[1:]] * len(marks)


def test_the_page_has_the_defaults_of_the_settings() -> None:
    told = {row[0]: row[1].strip("`") for row in rows(section("The defaults"))[3:]}
    daemon, relay = Config(), EdgeSettings()
    assert told == {
        "broker `listen`": BrokerSettings(store="memory:").listen,
        "hub `listen`": HubSettings(store="memory:").listen,
        "relay `listen`": relay.listen,
        "relay `require_token`": str(relay.require_token).lower(),
        "daemon `clone.policy`": daemon.clone.policy,
        "daemon `ipc.public_health_check`": str(daemon.ipc.public_health_check).lower(),
    }


# --- a claim that no other test shows ------------------------------------------------------------------

PLANTED = ("config.toml", "broker.toml", "edge.toml", "hub.toml", "claudemesh.toml", ".claudemesh/broker.toml")


def test_what_lies_in_the_folder_of_a_command_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CLAUDEMESH_HOME", raising=False)
    (tmp_path / "home").mkdir()
    (tmp_path / "repository").mkdir()
    monkeypatch.chdir(tmp_path / "repository")
    main(["config", "show", "--json"])
    before = capsys.readouterr().out
    for name in PLANTED:
        planted = tmp_path / "repository" / name
        planted.parent.mkdir(exist_ok=True)
        planted.write_text('listen = "0.0.0.0:7450"\n[clone]\npolicy = "allow"\n')
    (tmp_path / "repository" / "daemon" / "evil").mkdir(parents=True)
    (tmp_path / "repository" / "daemon" / "evil" / "membership.json").write_text("{}")
    assert main(["config", "show", "--json"]) == 0
    assert capsys.readouterr().out == before
    assert str(tmp_path / "home" / ".claudemesh") in before
