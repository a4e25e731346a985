"""The commands on real stores, as their users meet them: what they print, and how they end."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from claudemesh.cli.main import main
from claudemesh.pipeline import session
from tests.printed import check_output
from tests.spark.stores import writing

WITHIN_S = 900.0  # niced, beside everything else, on a slow machine


@pytest.fixture(scope="module")
def home(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a home with a broker's store that was copied once; commands use the session of the tests."""
    home = tmp_path_factory.mktemp("home")
    with writing(f"sqlite:///{home}/broker.db") as writer:
        writer.say("fill 8")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("CLAUDEMESH_")]:
            patch.delenv(name)
        patch.setenv("CLAUDEMESH_HOME", str(home))
        patch.setattr(session, "build", lambda *_, **__: spark)
        patch.setattr(session, "stop", lambda _: None)
        assert main(["pipeline", "ingest"]) == 0
        yield home


@pytest.mark.req("S1", "S4")
@pytest.mark.prints("claudemesh pipeline ingest")
def test_an_ingest_without_news_loads_no_spark(home: Path) -> None:
    code = (
        "import sys\nfrom claudemesh.cli.main import main\ncode = main(['pipeline', 'ingest', '--json'])\n"
        "sys.exit(code or 'pyspark' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    check_output("claudemesh", ["pipeline", "ingest"], 0, ran.stdout)
    assert (said["cut"], said["is_new"]) == (1, False)
    assert ran.stderr == ""
    assert (home / "lake" / "_cuts" / "1.json").exists()


@pytest.mark.req("S4")
@pytest.mark.prints("claudemesh pipeline report")
def test_a_report_is_a_document_and_a_page(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "report.html"
    assert main(["pipeline", "report", "--json", "--html", str(page)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is True
    assert {verdict["name"] for verdict in document["verdicts"]} == {"reconciliation", "orphans", "audit", "check"}
    assert document["sources"][0]["totals"]["message_history"] == {"lake": 8, "store": 8}
    assert json.loads(Path(document["out"]).read_text())["cut"] == document["cut"] == 1
    assert page.read_text().startswith("<!doctype html>")
    families = text_string_to_metric_families((home / "lake" / "metrics.prom").read_text())
    found = {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}
    assert found["cm_pipeline_cut",] == 1
    assert found["cm_pipeline_violations", "orphans"] == 0


@pytest.mark.req("S2", "S4")
@pytest.mark.prints("claudemesh pipeline run orphans")
def test_a_hole_in_a_store_is_named_and_ends_with_1(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = shutil.copy(home / "broker.db", tmp_path / "broker.db")
    connection = sqlite3.connect(store)
    connection.execute("DELETE FROM topic_message WHERE history_id = (SELECT min(history_id) FROM topic_message)")
    connection.commit()
    connection.close()
    where = ["--store", str(store), "--lake", str(tmp_path / "lake")]
    assert main(["pipeline", "run", "orphans", *where, "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["violations"] == 1
    assert said["items"][0]["client_message_id"] == "post-1"
    assert said["items"][0]["missing"] == ["message"]
    assert said["items"][0]["sender"]


@pytest.mark.req("S3", "S4")
@pytest.mark.prints("claudemesh pipeline check")
def test_a_check_says_how_much_it_looked_at(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert home
    assert main(["pipeline", "check", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["violations"], said["items"]) == (0, [])
    assert sum(said["checked"].values()) > 0
