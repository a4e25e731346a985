"""The how-to of the SDK shows what happens."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "test-with-the-sdk.md"


def test_the_page_prints_what_it_says() -> None:
    results = doctest.testfile(str(PAGE), module_relative=False)
    assert results.attempted >= 4
    assert results.failed == 0
