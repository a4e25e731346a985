"""The page on secrets says what is measured, and what is measured is good enough."""

import re

import pytest

from tools.secret_harmless import HARMLESS
from tools.secret_recall import PAGE, measure, plugins, render, table
from tools.secret_samples import SECRETS, Kind

FALSE_ALARMS_MAX = 1.0  # percent
NOT_TOLD_FROM_A_DIGEST = "hexadecimal, nameless, in quotes"  # the page says why


def written() -> dict[str, float]:
    """Return what the page says that ours finds, by kind."""
    return {
        name: float(ours)
        for name, ours in re.findall(r"^\| ([^|*]+) \| ([0-9.]+) %", PAGE.read_text(), re.MULTILINE)
    }


@pytest.mark.req("R6")
def test_the_page_says_what_is_measured() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert render(page, table()) == page, "run tools/secret_recall.py --write"


@pytest.mark.req("R6")
@pytest.mark.parametrize("kind", [kind for kind in SECRETS if kind.plugin], ids=lambda kind: kind.name)
def test_what_detect_secrets_finds_is_found(kind: Kind) -> None:
    ours, theirs = measure(kind, plugins())
    assert ours >= theirs or kind.name == NOT_TOLD_FROM_A_DIGEST


@pytest.mark.req("R6")
@pytest.mark.parametrize("kind", SECRETS, ids=lambda kind: kind.name)
def test_no_kind_is_found_less_often_than_the_page_says(kind: Kind) -> None:
    assert measure(kind, {})[0] >= written()[kind.name]


@pytest.mark.parametrize("kind", HARMLESS, ids=lambda kind: kind.name)
def test_what_is_harmless_is_seldom_taken_for_a_secret(kind: Kind) -> None:
    assert measure(kind, {})[0] <= FALSE_ALARMS_MAX


def test_every_plugin_for_credentials_has_its_samples() -> None:
    assert {kind.plugin for kind in SECRETS} - {""} == set(plugins())
