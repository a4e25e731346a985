"""Named queries out of `.sql` files."""

from pathlib import Path

import pytest

from claudemesh.storage.sqlfile import load_queries, parse_queries

FILE = """-- All there is to ask of a shelf.

-- name: put
-- First come, first served.
INSERT INTO shelf (key) VALUES (?)
ON CONFLICT DO NOTHING

-- name: keys
-- In the order of arrival.
  -- (positions are never used again)
SELECT key FROM shelf
ORDER BY position
"""


def test_a_file_is_a_list_of_named_statements(tmp_path: Path) -> None:
    path = tmp_path / "shelf.sql"
    path.write_text(FILE, encoding="utf-8")
    queries = load_queries(path)
    assert queries.names() == ["put", "keys"]
    assert queries["put"] == "INSERT INTO shelf (key) VALUES (?)\nON CONFLICT DO NOTHING"
    assert queries["keys"] == "SELECT key FROM shelf\nORDER BY position"


def test_an_unknown_name_is_an_error_at_once() -> None:
    with pytest.raises(KeyError):
        parse_queries(FILE, "f")["kyes"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("SELECT 1", "does not begin with"),
        ("", "does not begin with"),
        ("SELECT 1;\n-- name: a\n-- why\nSELECT 2", "does not begin with"),
        ("-- name: a\n-- why\nSELECT 1\n-- name: a\n-- why\nSELECT 2", "two queries called a"),
        ("-- name: a\nSELECT 1", "a does not say in a sentence"),
        ("-- name: a\n-- why\n", "a is empty"),
    ],
)
def test_a_file_that_breaks_the_form_is_refused_by_name(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        parse_queries(text, "shelf.sql")
