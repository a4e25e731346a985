"""The published vectors are what the code does, and an implementation that shares no code with it agrees."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import rfc8785

from claudemesh.kernel.canonical import canonicalize
from claudemesh.kernel.errors import InvalidRequest
from claudemesh.kernel.fingerprint import fingerprint_http_request, fingerprint_send
from tools.vectors import parse_send

FOLDER = Path(__file__).parents[2] / "docs" / "vectors"
CHECKER = FOLDER / "check.py"


def vectors(profile: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads((FOLDER / f"{profile}.json").read_text(encoding="utf-8"))["vectors"]
    assert found
    return found


def by_name(vector: dict[str, str]) -> str:
    return vector["name"]


@pytest.mark.req("F2", "F3")
@pytest.mark.parametrize("vector", vectors("canonical"), ids=by_name)
def test_a_canonical_vector_holds(vector: dict[str, str]) -> None:
    value = json.loads(vector["json"])
    if "refused" in vector:
        with pytest.raises(InvalidRequest):
            canonicalize(value)
    else:
        assert canonicalize(value).decode() == vector["canonical"] == rfc8785.dumps(value).decode()


@pytest.mark.req("F2", "F3")
@pytest.mark.parametrize("vector", vectors("send"), ids=by_name)
def test_a_send_vector_holds(vector: dict[str, str]) -> None:
    request = parse_send(vector["json"])
    if "refused" in vector:
        with pytest.raises(InvalidRequest):
            fingerprint_send(request)
    else:
        assert fingerprint_send(request).hex() == vector["fingerprint"]


@pytest.mark.req("F3")
@pytest.mark.parametrize("vector", vectors("http_request"), ids=by_name)
def test_an_http_request_vector_holds(vector: dict[str, str]) -> None:
    request = (vector["method"], vector["path"], vector["query"], bytes.fromhex(vector["body_hex"]))
    if "refused" in vector:
        with pytest.raises(InvalidRequest):
            fingerprint_http_request(*request)
    else:
        assert fingerprint_http_request(*request).hex() == vector["fingerprint"]


def run_checker(*arguments: str) -> subprocess.CompletedProcess[str]:
    # -I: no path of ours, so it cannot lean on claudemesh
    return subprocess.run(
        [sys.executable, "-I", str(CHECKER), *arguments], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.req("F3")
def test_the_checker_agrees_with_every_vector_without_claudemesh() -> None:
    assert "claudemesh" not in CHECKER.read_text(encoding="utf-8").split('"""', 2)[2]
    run = run_checker()
    assert run.returncode == 0, run.stdout
    assert run.stdout.endswith("vectors agree\n")


def test_the_readme_tells_what_the_checker_prints() -> None:
    assert f"check.py\n{run_checker().stdout}$" in (FOLDER / "README.md").read_text(encoding="utf-8")


def command_of(tmp_path: Path, source: str) -> list[str]:
    script = tmp_path / "other.py"
    script.write_text(source, encoding="utf-8")
    return ["--", sys.executable, "-I", str(script)]


def test_the_checker_accepts_another_implementation_that_is_right(tmp_path: Path) -> None:
    source = f"""
import json, sys
sys.path.insert(0, {str(FOLDER)!r})
import check
for line in sys.stdin:
    print(check.answer(json.loads(line)), flush=True)
"""
    assert run_checker(*command_of(tmp_path, source)).returncode == 0


@pytest.mark.parametrize(
    "source",
    [
        "import sys\nfor line in sys.stdin: print('00', flush=True)",
        "import sys\nfor line in sys.stdin: print('refused', flush=True)",
        "raise SystemExit",
    ],
    ids=["wrong", "refuses all", "ends at once"],
)
def test_the_checker_reports_another_implementation_that_is_wrong(tmp_path: Path, source: str) -> None:
    run = run_checker(*command_of(tmp_path, source))
    assert run.returncode == 1
    assert "WRONG" in run.stdout


def test_the_checker_explains_itself_when_called_wrongly() -> None:
    run = run_checker("please")
    assert run.returncode == 2
    assert "COMMAND" in run.stdout


@pytest.mark.parametrize("program", ["./missing", str(FOLDER)], ids=["missing", "not a program"])
def test_the_checker_says_which_program_it_cannot_start(program: str) -> None:
    run = run_checker("--", program)
    assert run.returncode == 2
    assert run.stdout.startswith(f"cannot start {program}: ")
    assert run.stderr == ""
