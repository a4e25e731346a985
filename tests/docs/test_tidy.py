"""Rules of this project that no linter has. Each names what to do instead."""

import ast
import configparser
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "claudemesh"

# pattern -> what to do instead
FORBIDDEN = {
    r"https?://(?!127\.0\.0\.1|localhost|\[::1\])[\w.-]*(?:pypi|pythonhosted|npmjs|debian|ubuntu)": (
        "no registry's host is written down: name the package, and let the machine's settings find it"
    ),
    r"(?<![\w.])/(?:root|home|work)/\w": "no path of one machine: relative to the project, or temporary",
    r"\b(?:class \w*(?:Manager|Helper)\b|(?:utils|common|helpers)\.py\b)": (
        "a name that says nothing: put it beside its one caller, or in the kernel"
    ),
}
NOT_OURS = {"LICENSE", "requirements/demo.txt", "requirements/dev.txt", "requirements/uv.txt"}
LINES_MAX = 500
PICTURES = {".png"}  # which hold no text

# --- which files ---------------------------------------------------------------------------------------

MADE = re.compile(r"\.(?!ci$).*|.*\.egg-info|__pycache__|build|dist|site")  # folders that git ignores
MADE_FILE = re.compile(r"\.coverage.*|\.git")  # .git is a file in a worktree


def by_git(root: Path) -> list[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if name]


def by_walking(root: Path) -> list[str]:
    found = []
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if not MADE.fullmatch(name)]
        found += [str((Path(folder) / name).relative_to(root)) for name in names if not MADE_FILE.fullmatch(name)]
    return found


def tracked(root: Path = ROOT) -> list[Path]:
    """Return our own files; without git's help (a tarball, somebody else's checkout) all that nothing made."""
    try:
        names = by_git(root)
    except (OSError, subprocess.CalledProcessError):
        names = by_walking(root)
    return [root / name for name in sorted(names) if name not in NOT_OURS and (root / name).is_file()]


def test_a_project_that_git_cannot_list_is_walked(tmp_path: Path) -> None:
    for name in (
        "a.py",
        ".ci/run",
        ".git",
        "docs/a b.md",
        "src/__pycache__/a.pyc",
        ".venv/b.py",
        ".coverage",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")  # as .git too, which git cannot read
    assert [str(path.relative_to(tmp_path)) for path in tracked(tmp_path)] == [".ci/run", "a.py", "docs/a b.md"]


def test_both_ways_of_listing_find_our_files() -> None:
    assert {PACKAGE / "__init__.py", ROOT / "Makefile", Path(__file__)} <= set(tracked())
    assert {str(path.relative_to(ROOT)) for path in tracked()} <= set(by_walking(ROOT))


# --- what is in them -----------------------------------------------------------------------------------


def problems(text: str) -> list[str]:
    return [instead for pattern, instead in FORBIDDEN.items() if re.search(pattern, text)]


def test_no_file_holds_what_is_forbidden() -> None:
    texts = [path for path in tracked() if path.suffix not in PICTURES]
    found = {str(path.relative_to(ROOT)): problems(path.read_text(encoding="utf-8")) for path in texts}
    del found[str(Path(__file__).relative_to(ROOT))]
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize(
    "text",
    ["https://files.pythonhosted.org/x", "see /root/x", "class JobManager:", "from x import utils.py"],
)
def test_each_rule_can_fail(text: str) -> None:
    assert problems(text)


def test_pins_name_no_host_and_no_path() -> None:
    for path in (ROOT / "requirements").glob("*.txt"):
        assert not re.search(r"://|--index-url|--find-links|(?<!\w)/\w+/", path.read_text(encoding="utf-8")), (
            path.name
        )


def test_no_module_is_so_long_that_it_must_answer_several_questions() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in tracked()
        if path.suffix == ".py" and (lines := len(path.read_text(encoding="utf-8").splitlines())) > LINES_MAX
    }
    assert long == {}


def test_no_folder_is_a_placeholder() -> None:
    empty = [
        str(path.relative_to(ROOT)) for path in tracked() if path.stat().st_size == 0 and path.name != "py.typed"
    ]
    assert empty == []


# --- who imports what: where .importlinter's lists of what is forbidden could never be complete ---------

# Nothing here does IO, asks the time or rolls dice.
PURE = ("collections", "dataclasses", "enum", "hashlib", "json", "re", "typing", "orjson", "claudemesh.kernel")
IO_WITHOUT_IMPORT = {"__import__", "breakpoint", "input", "open", "print"}
EVERYWHERE = {"claudemesh", "msgspec", "orjson"}  # libraries that need no fence: values in, values out


def imports(source: str, module: str) -> Iterator[str]:
    """Yield the full name of all that the module imports, wherever in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = module.split(".")[: -node.level] if node.level else []
            base = ".".join([*parents, *filter(None, [node.module])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Name) and node.id in IO_WITHOUT_IMPORT:
            yield node.id


def allowed(module: str) -> tuple[str, ...] | None:
    """Return what a module may import, or None for one that is not held to be pure."""
    _, part, *rest = [*module.split("."), ""]
    if part == "kernel":
        return PURE
    if rest[0] in {"model", "policy"}:
        own = (f"claudemesh.{part}.model", f"claudemesh.{part}.policy")
        return (*PURE, "msgspec", "claudemesh.outbox.model", "claudemesh.wire.json", *own)
    return None


def impurities(source: str, module: str) -> list[str]:
    pure = allowed(module)
    return [
        name for name in imports(source, module) if pure and not f"{name}.".startswith(tuple(f"{p}." for p in pure))
    ]


def modules() -> Iterator[tuple[str, str]]:
    """Yield every module of ours: its name and its source."""
    for path in sorted(PACKAGE.rglob("*.py")):
        names = path.relative_to(PACKAGE.parent).with_suffix("").parts
        yield ".".join(names), path.read_text(encoding="utf-8")


def test_kernel_models_and_policies_import_nothing_but_what_is_pure() -> None:
    found = {module: wrong for module, source in modules() if (wrong := impurities(source, module))}
    assert found == {}, f"beside the kernel only {PURE} (msgspec and each other in models and policies)"


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("claudemesh.kernel.lease", "import time"),
        ("claudemesh.kernel.lease", "import os.path"),
        ("claudemesh.kernel.lease", "from datetime import datetime"),
        ("claudemesh.kernel.lease", "def f():\n    import socket"),
        ("claudemesh.kernel.lease", "import msgspec"),
        ("claudemesh.kernel.lease", "from claudemesh import runtime"),
        ("claudemesh.kernel.lease", "from ..runtime import clock"),
        ("claudemesh.kernel.lease", "import resource, re"),
        ("claudemesh.kernel.lease", "open('x')"),
        ("claudemesh.kernel.__init__", "from .. import storage"),
        ("claudemesh.daemon.policy", "import asyncpg"),
        ("claudemesh.daemon.policy", "from claudemesh.daemon import ports"),
        ("claudemesh.daemon.policy", "from claudemesh.broker.model import Topic"),
        ("claudemesh.broker.model.topics", "from .. import stores"),
    ],
)
def test_an_import_that_is_not_pure_is_reported(module: str, source: str) -> None:
    assert impurities(source, module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("claudemesh.kernel.lease", "from collections.abc import Iterable\nfrom claudemesh.kernel.ids import Ulid"),
        ("claudemesh.kernel.lease", "from . import ids"),
        (
            "claudemesh.daemon.policy",
            "import msgspec\nfrom claudemesh.daemon.model import Row\nfrom . import model",
        ),
        ("claudemesh.daemon.service", "import asyncio"),
        ("claudemesh.runtime.clock", "import time"),
    ],
)
def test_an_import_that_is_pure_or_elsewhere_is_not(module: str, source: str) -> None:
    assert impurities(source, module) == []


def test_every_library_has_its_fence() -> None:
    fences = configparser.ConfigParser()
    fences.read(ROOT / ".importlinter", encoding="utf-8")
    fenced = set(fences["importlinter:contract:fences"]["forbidden_modules"].split())
    used = {name.partition(".")[0] for module, source in modules() for name in imports(source, module)}
    outside = used - sys.stdlib_module_names - IO_WITHOUT_IMPORT - EVERYWHERE
    assert outside <= fenced, "say in .importlinter which modules may import it"


# --- which tests run -----------------------------------------------------------------------------------


def lanes(makefile: str) -> list[Path]:
    """Return the folders that `make test` runs."""
    lists = re.findall(r"^(?:UNIT|FAST|REAL|SPARK) := (.+)$", makefile, re.MULTILINE)
    assert len(lists) == 4
    return [Path(folder) for folder in " ".join(lists).split()]


def outside_lanes(tests: list[Path], makefile: str) -> list[str]:
    run = lanes(makefile)
    return [str(test) for test in tests if not any(test.is_relative_to(folder) for folder in run)]


def test_every_test_is_in_a_lane_of_make_test() -> None:
    tests = [path.relative_to(ROOT) for path in tracked() if path.match("test_*.py")]
    by_themselves = ["tests/mutation/test_mutants.py"]  # `make mutants`: decision 0009
    assert outside_lanes(tests, (ROOT / "Makefile").read_text(encoding="utf-8")) == by_themselves


def test_a_test_that_no_lane_runs_is_reported() -> None:
    makefile = "UNIT := tests/unit\nFAST := tests/docs\nREAL := tests/chaos\nSPARK := tests/spark\n"
    tests = [Path("tests/unit/test_a.py"), Path("tests/unity/test_b.py"), Path("tests/test_c.py")]
    assert outside_lanes(tests, makefile) == ["tests/unity/test_b.py", "tests/test_c.py"]
