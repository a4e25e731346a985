"""The template for AGENTS.md and the skill file name what there is."""

import re
from pathlib import Path

import pytest

from claudemesh.cli.host.blocks import read_skill
from claudemesh.edge.model import WORDS
from claudemesh.edge.settings import LISTEN_DEFAULT
from claudemesh.kernel.errors import LeaseLost
from claudemesh.kernel.write_errors import NotQueueable, OutcomeUnknown
from claudemesh.mcp import results
from claudemesh.mcp.prompts import PROMPTS
from claudemesh.mcp.tools import TOOLS

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "point-agents-at-the-relay.md"

KNOWN = {
    *TOOLS,
    *PROMPTS,
    *results.WRITES,
    *(error.code for error in (LeaseLost, NotQueueable, OutcomeUnknown)),
    *("Idempotency-Key", "expected_updated_at", "expected_status", "if_match", "nothing_waits"),
    "statehub outbox status",
    *(f"claudemesh {command}" for command in ("doctor", "inbox", "install", "peer list", "send", "uninstall")),
}


@pytest.mark.req("C3")
def test_the_template_points_at_the_relay_and_names_nothing_that_is_not_there() -> None:
    template = PAGE.read_text(encoding="utf-8").partition("```markdown")[2].partition("```")[0]
    named = {*re.findall(r"`([^`]+)`", template)}
    assert named <= KNOWN, named - KNOWN
    assert {"statehub outbox status", "write", "queued", "status", "hand_over_work", "conflicts"} <= named
    assert LISTEN_DEFAULT not in template, "a relay may listen elsewhere, and somebody else there"


@pytest.mark.req("C3", "C7")
def test_the_skill_file_says_of_a_write_what_the_tool_says_and_no_word_of_the_relays_own() -> None:
    named = {*re.findall(r"`([^`]+)`", read_skill())}
    told = {*results.WRITES, *results.STATES}
    assert told - {"aborted", "dead_letter"} <= named
    assert named.isdisjoint({*WORDS.values()} - told)
