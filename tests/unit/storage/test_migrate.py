"""Which migrations are due, and what is refused."""

from pathlib import Path

import pytest

from claudemesh.kernel.errors import SchemaTooNew
from claudemesh.storage.migrate import Migration, in_order, load_migrations, plan

ROAD = tuple(Migration(version, f"step_{version}", "SELECT 1") for version in (1, 2, 3))


@pytest.mark.req("D12")
@pytest.mark.parametrize(("version", "due"), [(0, [1, 2, 3]), (1, [2, 3]), (3, [])])
def test_what_is_due_is_everything_after_the_files_version(version: int, due: list[int]) -> None:
    assert [migration.version for migration in plan(version, ROAD)] == due


@pytest.mark.req("D12")
def test_a_newer_version_is_refused_with_both_numbers() -> None:
    with pytest.raises(SchemaTooNew) as refused:
        plan(4, ROAD)
    assert refused.value.extras == {"schema_version": 4, "schema_version_known": 3}


@pytest.mark.req("D12")
def test_a_version_so_new_that_it_reads_as_negative_is_refused_too() -> None:
    with pytest.raises(SchemaTooNew):
        plan(-1, ROAD)


def write(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).write_text(f"-- {name}", encoding="utf-8")
    return folder


def test_a_folder_is_read_in_the_order_of_its_numbers(tmp_path: Path) -> None:
    folder = write(tmp_path, "0002_more.sql", "0001_first.sql", "README.md")
    assert [(m.version, m.name, m.sql) for m in load_migrations(folder)] == [
        (1, "first", "-- 0001_first.sql"),
        (2, "more", "-- 0002_more.sql"),
    ]


@pytest.mark.parametrize(
    "names",
    [
        ["0002_b.sql"],
        ["0001_a.sql", "0003_c.sql"],
        ["0001_a.sql", "0001_b.sql"],
        ["1_a.sql"],
        ["0001-a.sql"],
        ["0001_a.sql.sql"],
    ],
    ids=str,
)
def test_a_folder_with_a_gap_a_twin_or_a_strange_name_is_refused(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(ValueError, match=r"without a gap|NNNN"):
        load_migrations(write(tmp_path, *names))


def test_migrations_of_several_parts_are_numbered_anew_in_the_order_they_are_given() -> None:
    other = Migration(1, "other", "SELECT 2")
    assert in_order(ROAD[0], other, ROAD[1]) == (
        ROAD[0],
        Migration(2, "other", "SELECT 2"),
        Migration(3, "step_2", "SELECT 1"),
    )
