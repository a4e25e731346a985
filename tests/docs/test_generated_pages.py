"""Pages that are made from the code fail when they are stale."""

from pathlib import Path
from unittest.mock import MagicMock

import pytest

from claudemesh.broker.calls import Calls
from claudemesh.kernel.errors import MeshError
from claudemesh.wire import frames, signing
from tools import docs

ROOT = Path(__file__).parents[2]


def test_every_generated_page_is_current() -> None:
    for name, text in docs.render_all().items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text, f"{name} is stale: run `make docs`"


def test_a_stale_page_is_reported_and_then_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    assert docs.main(["--check"]) == 1
    assert "reference/errors.md" in capsys.readouterr().out
    assert docs.main([]) == 0
    assert docs.main(["--check"]) == 0
    page = tmp_path / "docs" / "reference" / "errors.md"
    page.write_text(page.read_text(encoding="utf-8") + "by hand", encoding="utf-8")
    assert docs.main(["--check"]) == 1


def test_the_page_on_the_wire_leaves_out_no_purpose_no_operation_and_no_type() -> None:
    page = (ROOT / "docs" / "reference" / "protocol.md").read_text(encoding="utf-8")
    nothing = MagicMock()
    operations = Calls(nothing, nothing, nothing, nothing, nothing).operations
    purposes = [value for value in vars(signing).values() if isinstance(value, str) and value.endswith("-v1")]
    named = (*operations, *purposes, *frames.CLOSE_WORDS.values())
    assert [name for name in named if f"`{name}`" not in page] == []
    assert [name for name, operation in operations.items() if not operation.handler.__doc__] == []
    codes = [value for name, value in vars(frames).items() if name.startswith("CLOSE_") and isinstance(value, int)]
    assert list(frames.CLOSE_WORDS) == codes
    assert "Annotated" not in page


@pytest.mark.req("F7")
def test_every_code_has_its_row_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    listed = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert listed == [error.code for error in MeshError.family()]
