"""The pages on the relay's routes show what would work."""

import json
import re
from pathlib import Path

import pytest

from claudemesh.edge.routing import load_built_in, load_policy

ROOT = Path(__file__).parents[2]


@pytest.mark.req("R3")
def test_the_policy_of_the_how_to_is_one() -> None:
    page = (ROOT / "docs/how-to/relay-your-own-api.md").read_text(encoding="utf-8")
    shown = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert [len(load_policy(text).rules) for text in shown] == [3]


@pytest.mark.req("R3")
def test_every_built_in_route_is_in_the_inventory_with_an_example() -> None:
    page = (ROOT / "docs/reference/relay-routes.md").read_text(encoding="utf-8")
    for rule in load_built_in().rules:
        assert f"| `{rule.name}` | {rule.route_class} |" in page
        assert f"### `{rule.name}`" in page
        assert isinstance(json.loads(rule.example or ""), dict)
