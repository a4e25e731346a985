"""What `import claudemesh` gives: every name, loaded on first use, and no more than that."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import claudemesh
from claudemesh.kernel import errors

SOURCE = Path(claudemesh.__file__)


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


@pytest.mark.req("C2")
def test_importing_the_package_loads_nothing_else() -> None:
    program = "import sys; before = {*sys.modules}; import claudemesh; print(*sorted({*sys.modules} - before))"
    assert run(program) == "claudemesh"


@pytest.mark.parametrize("name", claudemesh.__all__)
def test_every_public_name_is_there_and_is_loaded_once(name: str) -> None:
    found = getattr(claudemesh, name)
    assert vars(claudemesh)[name] is found
    assert name in dir(claudemesh)


def test_type_checkers_see_exactly_the_public_names() -> None:
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert imported - {"import_module"} == {*claudemesh.__all__}
    assert (SOURCE.parent / "py.typed").is_file()


def test_a_name_that_is_not_public_is_not_there() -> None:
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = claudemesh.Nonsense  # type: ignore[attr-defined]


@pytest.mark.req("F7")
def test_every_error_has_its_class_and_every_class_its_code() -> None:
    family = [*errors.MeshError.family()]
    theirs = [one for one in family if one.__module__ == errors.__name__]  # those of hub and relay meet no program
    assert all(getattr(claudemesh.errors, one.__name__) is one for one in theirs)
    assert len({one.code for one in family}) == len(family)


def test_a_program_that_sends_loads_no_server() -> None:
    program = "import sys, claudemesh; claudemesh.Mesh, claudemesh.Receipt; print(*sys.modules)"
    loaded = set(run(program).split())
    assert not loaded & {"uvicorn", "websockets", "apsw", "nacl", "asyncio", "claudemesh.broker", "click"}
