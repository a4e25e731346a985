"""`statehub drill` as an operator runs it: it passes, it leaves nothing behind, and it notices what is wrong."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import claudemesh.kernel
from tests.faults.planting import copy_sources, planted
from tests.printed import check_output
from tests.requirements import Fault

pytestmark = pytest.mark.req("R9")

SOURCES = Path(claudemesh.kernel.__file__).parents[2]  # which may hold a fault already
RUNBOOK = Path(__file__).parents[2] / "docs/how-to/outage.md"
WITHIN_S = 90
STEPS = 17


def run_drill(tmp_path: Path, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run it in a place where nothing else is: what it leaves behind shows."""
    (tmp_path / "tmp").mkdir(exist_ok=True)
    ran = subprocess.run(
        [sys.executable, "-m", "claudemesh.cli.statehub.main", "drill", *words],
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp"), "HOME": str(tmp_path), "NO_COLOR": "1", **environment},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    if "--json" in words:
        check_output("statehub", ["drill"], ran.returncode, ran.stdout)
    return ran


def test_the_drill_passes_and_says_so_step_by_step(tmp_path: Path) -> None:
    # Settings that would break everything, were they heard: an operator's own are not touched, nor read.
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o700)
    (mine / "edge.toml").write_text('upstream = "http://192.0.2.1"\n')
    (mine / "hub.toml").write_text("nonsense = 1\n")
    ran = run_drill(tmp_path, CLAUDEMESH_HOME=str(mine), STATEHUB_TOKEN="mine", CLAUDEMESH_EDGE__LISTEN="nowhere")  # noqa: S106
    assert ran.returncode == 0, ran.stdout + ran.stderr
    *steps, verdict = ran.stdout.splitlines()
    assert [line[0] for line in steps] == ["✓"] * STEPS
    assert re.fullmatch(r"passed: 17 steps in [\d.]+ s; nothing was lost, doubled or overwritten", verdict)
    assert sorted(path.name for path in mine.iterdir()) == ["edge.toml", "hub.toml"]
    assert list((tmp_path / "tmp").iterdir()) == []
    assert ran.stderr == ""
    shown = RUNBOOK.read_text(encoding="utf-8").split("$ statehub drill\n")[1].split("```")[0]
    assert shape(ran.stdout) == shape(shown)


def shape(text: str) -> list[str]:
    """Leave out what differs from run to run: ports, processes, seconds, and how many files SQLite has."""
    return [re.sub(r"127\.0\.0\.1:\d+|process \d+|[\d.]+ s\b|\d+ files", "N", line) for line in text.splitlines()]


@pytest.mark.prints("statehub drill")
def test_the_drill_tells_a_program_everything_in_one_document_and_keeps_what_it_is_told_to(tmp_path: Path) -> None:
    ran = run_drill(tmp_path, "--json", "--keep")
    told: dict[str, Any] = json.loads(ran.stdout)
    assert (ran.returncode, told["ok"], told["verdict"]) == (0, True, "passed"), ran.stdout
    assert len(told["steps"]) == STEPS
    assert all(step["ok"] and step["name"] and step["detail"] for step in told["steps"])
    home = Path(told["home"])
    assert home.parent == tmp_path / "tmp"
    assert {"home", "repo", "hub.log", "relay.log"} <= {path.name for path in home.iterdir()}


FAULTS = {
    "what may not wait is refused": Fault(
        what="A write with a credential waits on the disk.",
        file="edge/sorting.py",
        old='return "contains_secret"',
        new="return None",
        test="",
    ),
    "exactly one write is in conflict": Fault(
        what="A stale write is applied over what is newer.",
        file="hub/policy.py",
        old="if expected.updated_at is not None and row.updated_at != expected.updated_at:",
        new="if expected.updated_at is not None and row.updated_at < expected.updated_at:",
        test="",
    ),
    "no append is lost or doubled": Fault(
        what="The hub's keys are not heard, and a write that went out twice is done twice.",
        file="edge/upstream.py",
        old="        connection = await self._take(deadline_s)\n        try:\n            return await",
        new="        connection = await self._take(deadline_s)\n        try:\n"
        "            if b'drill-progress-3' in raw:\n"
        "                again = raw.replace(b'idempotency-key: drill-progress-3', b'idempotency-key: drill-x')\n"
        "                await connection.exchange(again, deadline_s, is_head=is_head)\n"
        "                connection = await self._take(deadline_s)\n"
        "            return await",
        test="",
    ),
    "no secret is in any file": Fault(
        what="What is refused is written into the log.",
        file="edge/service.py",
        old="self._world.observer.publish(WriteRefused(reason))",
        new="self._world.observer.publish(WriteRefused(str(write.asked.body)))",
        test="",
    ),
}


@pytest.mark.parametrize(("step", "fault"), FAULTS.items(), ids=FAULTS)
def test_the_drill_fails_where_the_relay_or_the_hub_does_wrong(tmp_path: Path, step: str, fault: Fault) -> None:
    src = copy_sources(SOURCES)
    with planted(fault, src):
        ran = run_drill(tmp_path, "--json", PYTHONPATH=str(src))
    told = json.loads(ran.stdout)
    assert (ran.returncode, told["ok"], told["verdict"]) == (1, False, "failed"), ran.stdout
    assert [one["name"] for one in told["steps"] if not one["ok"]] == [step], ran.stdout
    assert told["steps"][-1]["detail"]
    assert list((tmp_path / "tmp").iterdir()) == []
