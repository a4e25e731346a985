"""Pages that are made from the code fail when they are stale."""

from pathlib import Path

import pytest

from claudemesh.kernel.errors import MeshError
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


@pytest.mark.req("F7")
def test_every_code_has_its_row_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    listed = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert listed == [error.code for error in MeshError.family()]
