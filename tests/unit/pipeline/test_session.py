"""How a session is set up, and what becomes of what killed ones leave behind."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark
import pytest

from claudemesh.pipeline import session
from claudemesh.pipeline.session import BRIEF, GIB, derive_settings, is_local, parse_defaults
from claudemesh.runtime.environment import lent_environment


@pytest.mark.req("S6")
@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[*]", True),
        ("local[4,3]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://host:7077", False),
        ("yarn", False),
        ("k8s://https://host", False),
    ],
)
def test_only_a_master_of_this_process_keeps_to_loopback(master: str, local: bool) -> None:  # noqa: FBT001
    assert is_local(master) is local
    assert ("spark.driver.bindAddress" in derive_settings(master, 2, GIB)) is local


@pytest.mark.parametrize(("gib", "heap"), [(0.5, "1g"), (3, "1g"), (8, "4g"), (24, "8g"), (256, "8g")])
def test_the_heap_is_half_of_the_memory_within_bounds(gib: float, heap: str) -> None:
    assert derive_settings("local[*]", 2, int(gib * GIB))["spark.driver.memory"] == heap


@pytest.mark.parametrize(
    ("master", "written", "settings"),
    [
        ("local[2]", "", BRIEF),
        ("local[2]", "spark.sql.adaptive.enabled true", {**BRIEF, "spark.sql.adaptive.enabled": "true"}),
        ("spark://host:7077", "", derive_settings("spark://host:7077", 2, GIB)),
    ],
    ids=["alone", "the user's", "a cluster"],
)
def test_what_suits_little_gives_way_to_the_users_own_settings_and_is_not_for_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str, written: str, settings: dict[str, str]
) -> None:
    started: list[Mapping[str, str]] = []
    monkeypatch.setattr(session, "find_java", lambda _: tmp_path / "java")
    monkeypatch.setattr(session, "make_java_home", lambda home, _: home)
    monkeypatch.setattr(session, "_start", lambda settings, _place, _lock: started.append(settings))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text(written)
    session.build(master, scratch=tmp_path / "scratch", name="x", brief=True)
    assert [{name: one.get(name) for name in BRIEF} for one in started] == [
        {name: settings.get(name) for name in BRIEF}
    ]


def test_the_file_of_settings_is_read_as_spark_reads_it() -> None:
    lines = ["# a comment", "", "spark.master   spark://host:7077", "spark.ui.enabled=true", "spark.a b c"]
    assert parse_defaults("\n".join([*lines, "  spark.b: x=y", "alone"])) == {
        "spark.master": "spark://host:7077",
        "spark.ui.enabled": "true",
        "spark.a": "b c",
        "spark.b": "x=y",
    }


def test_what_nobody_holds_is_swept_and_what_is_held_or_not_ours_stays(tmp_path: Path) -> None:
    left, lock = session._claim(tmp_path)
    os.close(lock)  # as when its JVM is killed
    (tmp_path / "lake").mkdir()
    held, first = session._claim(tmp_path)
    other, second = session._claim(tmp_path)
    assert not left.exists()
    assert {path.name for path in tmp_path.iterdir()} == {held.name, other.name, "lake"}
    os.close(first)
    os.close(second)


@pytest.mark.req("S6")
def test_what_is_shipped_to_workers_reads_a_store_without_an_installation(tmp_path: Path) -> None:
    archive = session._pack(tmp_path)
    code = "import claudemesh.pipeline.datasource as it; print(it.__file__)"
    packages = str(Path(pyspark.__file__).parents[1])
    ran = subprocess.run(
        [sys.executable, "-S", "-c", code],  # without `site`, and so without a link to our sources
        env={"PYTHONPATH": os.pathsep.join([str(archive), packages])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.startswith(str(archive)), ran.stderr


def test_what_was_set_for_a_library_is_as_before_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAS_SET", "before")
    monkeypatch.delenv("WAS_NOT", raising=False)
    with lent_environment({"WAS_SET": "now", "WAS_NOT": "now"}):
        assert (os.environ["WAS_SET"], os.environ["WAS_NOT"]) == ("now", "now")
    assert (os.environ["WAS_SET"], os.environ.get("WAS_NOT")) == ("before", None)


def test_what_py4j_says_of_an_interrupt_is_kept_quiet_and_what_others_say_is_not() -> None:
    said = (
        "import logging; from claudemesh.pipeline.session import hush_py4j; hush_py4j()\n"
        "logging.basicConfig()\n"
        "logging.getLogger('py4j.clientserver').error('a traceback')\n"
        "logging.getLogger('ours').error('a word')"
    )
    ran = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert ran.stderr == "ERROR:ours:a word\n"
