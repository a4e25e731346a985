"""No secret leaves in a bundle: planted wherever one may be, and looked for in every byte."""

import errno
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from claudemesh.cli.doctor import scene
from claudemesh.cli.doctor.bundle import tail
from claudemesh.cli.doctor.redaction import HOME, Redactor
from claudemesh.cli.doctor.scene import Scene
from claudemesh.daemon.stores.sqlite.inbox import SCHEMA as INBOX
from claudemesh.daemon.stores.sqlite.outbox import SCHEMA as OUTBOX
from claudemesh.edge.stores.sqlite.outbox import SCHEMA as EDGE
from claudemesh.runtime.home import Home, write_private
from claudemesh.storage.sqlite.database import Database
from tests import canaries
from tests.unit.cli.conftest import Run
from tests.unit.cli.doctor.test_stores import change
from tests.unit.cli.scripted import respond, scripted_daemon

LOCAL = "Lt0kenCanary_4f8Zq1-xY77abcDEFghiJKL"
RELAY = "R3layTokenCanary-pQ88zzTTyyXXwwVVuuT"
ADMIN = "4dminTokenCanary-mN12opQRstUVwxYZabC"
BODY = "the-body-of-a-message-canary-that-is-nobodys-business"
META = "a-meta-canary-that-nobody-reads"
RESUME = "eyJzdWIiOiJjYW5hcnkiLCJtZW0iOiJjYW5hcnkifQ.c2lnbmVkLWNhbmFyeS1yZXN1bWU"
RESUME_KEY = "c4" * 31 + "9e"
INVITE = "eyJicm9rZXJfdXJsIjoiaHR0cDovL2NhbmFyeSIsImludml0ZV9pZCI6ImNhbmFyeTk5In0"
DIARY = "my-private-diary-canary"
DATABASE = "p0stgres-pass-canary"

ROW = """
INSERT INTO outbox (
    id, client_message_id, request_fingerprint, to_asked, destination, payload, enqueued_at, next_attempt_at,
    status, last_error
) VALUES ('r', 'c', zeroblob(32), 'bob', 'bob', ?, 0, 0, 'dead', ?)
"""
MESSAGE = """
INSERT INTO inbox (
    seq, sender_id, client_message_id, broker_message_id, history_id, sender_pubkey, sender_name, body, meta,
    priority, reply_to, accepted_at, received_at
) VALUES (1, 's', 'c', 'b', 1, 'k', 'bob', ?, ?, 'next', '', 0, 0)
"""


@pytest.fixture
def planted(home: Home, state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Put secrets into every place that has one, and into places that should have none."""
    monkeypatch.setattr(scene, "ASK_S", 2.0)
    seed = json.loads((state_dir / "keypair.json").read_bytes())["ed25519_seed"]
    edge = home.ensure_dir(home.edge_dir)
    write_private(state_dir / "local_token", f"{LOCAL}\n".encode())
    write_private(edge / "local_token", f"{RELAY}\n".encode())
    write_private(home.root / "admin", f"{ADMIN}\n".encode())
    write_private(home.ensure_dir(home.root / "pending") / "x.json", json.dumps({"code": INVITE}).encode())
    (home.root / DIARY).write_text("dear me")
    monkeypatch.setenv("STATEHUB_TOKEN", canaries.CREDENTIAL)
    settings = (
        f'admin_token_file = "admin"\nstore = "postgresql://mesh:{DATABASE}@db/mesh?sslpassword={DATABASE}2"\n'
    )
    write_private(home.root / "broker.toml", f'{settings}resume_token_key = "{RESUME_KEY}"\n'.encode())
    write_private(home.root / "edge.toml", f'token_file = "{tmp_path / DIARY}"\n'.encode())
    for path, schema in (
        (state_dir / "outbox.db", OUTBOX),
        (edge / "outbox.db", EDGE),
        (state_dir / "inbox.db", INBOX),
    ):
        Database.open(path, schema).close()
    for path in (state_dir / "outbox.db", edge / "outbox.db"):
        change(path, ROW, values=(f"{BODY} {META}".encode(), f"refused: {BODY}"))
    change(state_dir / "inbox.db", "INSERT INTO event (seq, type, at) VALUES (1, 'message', 0)")
    change(state_dir / "inbox.db", MESSAGE, values=(BODY, json.dumps({"m": META})))
    told = (LOCAL, RELAY, ADMIN, RESUME, INVITE, seed, RESUME_KEY, *canaries.PLANTED)
    lines = [{"at": "2026-01-01T00:00:00Z", "level": "info", "event": "x", "said": f"Bearer {one}"} for one in told]
    log = "\n".join([*map(json.dumps, lines), BODY, f'{{"at": 1, "text": "{BODY}"}}'])
    for path in (state_dir / "daemon.log", edge / "edge.log", state_dir / "daemon.out"):
        write_private(path, log.encode())
    own = (
        seed,
        RESUME_KEY,
        LOCAL,
        RELAY,
        ADMIN,
        BODY,
        META,
        RESUME,
        INVITE,
        DIARY,
        DATABASE,
    )
    return (*own, canaries.CREDENTIAL, canaries.AUTHORIZATION, canaries.API_KEY, canaries.TOKEN)


@pytest.mark.req("C5")
def test_no_secret_is_in_any_byte_of_a_bundle(
    run: Run, planted: tuple[str, ...], state_dir: Path, tmp_path: Path
) -> None:
    health = {
        "connected": True,
        "link": f"closed: {LOCAL}",
        "degraded": True,
        "daemon_version": "1",
        "uptime_s": 1,
    }
    with scripted_daemon(state_dir / "sock") as daemon:
        daemon.on("GET", "/v1/health", respond(200, {**health, "member_pubkey": "ab" * 32}))
        daemon.on("GET", "/v1/metrics", respond(200, f"cm_daemon_connected 1\n# {LOCAL}"))
        ran = run("doctor", "--bundle", str(tmp_path / "b.tar.gz"), "--json")
    assert ran.json["bundle"]
    unpacked = tmp_path / "unpacked"
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        archive.extractall(unpacked, filter="data")
    names = {path.name for path in unpacked.rglob("*") if path.is_file()}
    assert {
        "doctor.json",
        "settings.json",
        "stores.json",
        "versions.json",
        "daemon-demo.jsonl",
        "relay.jsonl",
    } <= names
    assert canaries.found_in(unpacked, planted) == []
    assert not [one for one in planted if one in ran.out and one != LOCAL], "nor in what is printed"


@pytest.mark.req("C5")
def test_a_bundle_holds_what_somebody_needs_to_help(
    run: Run, planted: tuple[str, ...], home: Home, tmp_path: Path
) -> None:
    assert planted
    run("doctor", "--bundle", str(tmp_path / "b.tar.gz"))
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        files = {member.name.rpartition("/")[2]: archive.extractfile(member) for member in archive.getmembers()}
        read = {name: file.read() for name, file in files.items() if file is not None}
    stores = json.loads(read["stores.json"])
    assert stores["outbox of demo"]["rows"]["outbox"] == {"dead": 1}
    assert stores["outbox of demo"]["schema_version"] == len(OUTBOX.migrations)
    settings = {one["of"]: one["settings"] for one in json.loads(read["settings.json"])["files"]}
    assert settings["broker"]["store"]["value"].startswith("postgresql://mesh:(hidden)@db/mesh")
    assert settings["broker"]["resume_token_key"]["source"]["kind"] == "file"
    assert json.loads(read["versions.json"])["claudemesh"]
    assert any(check["name"] == "integrity" for check in json.loads(read["doctor.json"])["checks"])
    assert str(home.root).encode() not in b"".join(read.values()), "where the home is, is nobody's business"
    events = [json.loads(line) for line in read["daemon-demo.jsonl"].splitlines()]
    assert {event["event"] for event in events} == {"x"}


@pytest.mark.req("C5")
@pytest.mark.parametrize("password", ["Tr0ub4dor/3xyz", "Corr#ectHorse", "Batt?ery9", "c0rrect@h0rse", "tr[ub4d0r"])
def test_a_password_that_nobody_escaped_does_not_leave(
    run: Run, home: Home, state_dir: Path, tmp_path: Path, password: str
) -> None:
    write_private(home.root / "broker.toml", f'store = "postgresql://app:{password}@db/mesh"\n'.encode())
    texts = [f"cannot reach postgresql://app:{password}@db/mesh", f"refused {password} for app"]
    log = "\n".join(json.dumps({"at": "2026-01-01T00:00:00Z", "event": "x", "said": text}) for text in texts)
    write_private(state_dir / "daemon.log", log.encode())
    run("doctor", "--bundle", str(tmp_path / "b.tar.gz"))
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    assert canaries.found_in(tmp_path / "unpacked", (password,)) == []


@pytest.mark.req("C5")
@pytest.mark.usefixtures("state_dir")
def test_a_password_is_known_word_for_word_with_and_without_what_follows_its_first_at(
    make_scene: Callable[..., Scene], home: Home
) -> None:
    write_private(home.root / "broker.toml", b'store = "postgresql://app:tr0ub4d0r@db/mesh?options=a@b"\n')
    assert "tr0ub4d0r" not in Redactor(make_scene()).text("tr0ub4d0r was refused")


NAMED = (
    {"password": "hunter2-horse"},
    {"password": 84726159},
    {"api_key": "tiger-lion-77"},
    {"secret": {"value": "tiger-cub-99"}},
    {"secret": {"of": [{"deep": "tiger-owl-55"}]}},
    {"tokens": ["abc-def-123"]},
    {"access_tokens": "ghi-jkl-456"},
    {"headers": {"cookie": "sid=9a8b7c6d5e"}},
    {"asked": [{"Set-Cookie": "sid=1f2e3d4c5b"}]},
    {"body": "lunch-at-noon"},
    {"meta": {"colour": "mauve-as-ever"}},
    {"Body": ["dinner-at-eight"]},
)
PLAIN = {
    "client_message_ids": ["invoice-7"],
    "session_pubkey": "short",
    "lease_token": 41,
    "tokens": 1200,
    "tokens_pruned": 3,
    "body_bytes": 77,
    "has_password": True,
    "token": None,
    "code": "rate_limited",
}


@pytest.mark.req("C5")
def test_what_a_fields_name_gives_away_does_not_leave_and_what_helps_does(
    run: Run, state_dir: Path, home: Home, tmp_path: Path
) -> None:
    line = {"at": "2026-01-01T00:00:00Z", "event": "x"}
    log = "\n".join(json.dumps({**line, **one}) for one in (*NAMED, PLAIN))
    write_private(state_dir / "daemon.log", log.encode())
    write_private(home.root / "broker.toml", b'limiter = "redis:/:pw-of-9-cats@h"\n')
    run("doctor", "--bundle", str(tmp_path / "b.tar.gz"))
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    secrets = (
        "hunter2-horse", "84726159", "tiger-lion-77", "tiger-cub-99", "tiger-owl-55", "abc-def-123",
        "ghi-jkl-456", "9a8b7c6d5e", "1f2e3d4c5b", "lunch-at-noon", "mauve-as-ever", "dinner-at-eight",
        "pw-of-9-cats",
    )  # fmt: skip
    assert canaries.found_in(tmp_path / "unpacked", secrets) == []
    (told,) = (tmp_path / "unpacked").rglob("daemon-demo.jsonl")
    assert json.loads(told.read_text().splitlines()[-1]) == {**line, **PLAIN}


@pytest.mark.req("C5")
def test_a_pipe_in_the_place_of_a_log_has_no_lines_and_is_let_go_of(
    make_scene: Callable[..., Scene], state_dir: Path
) -> None:
    os.mkfifo(state_dir / "daemon.log")
    assert list(tail(state_dir / "daemon.log", Redactor(make_scene()))) == []
    with pytest.raises(OSError, match="No such device") as nobody_reads:
        os.open(state_dir / "daemon.log", os.O_WRONLY | os.O_NONBLOCK)
    assert nobody_reads.value.errno == errno.ENXIO


@pytest.mark.parametrize(
    ("told", "leaves"),
    [
        ("cwd:/srv/bob/x", "cwd:(path)"),
        ("sqlite:////srv/bob/hub.db", "sqlite:(path)"),
        ("file:///srv/bob/x", "file:(path)"),
        ("PATH=/srv/bob/bin:/srv/bob/sbin", "PATH=(path):(path)"),
        ("https://hub.example:8000/v1/x is away", "https://hub.example:8000/v1/x is away"),
        ("{home}/hub.db, sqlite:///{home}/hub.db", f"{HOME}/hub.db, sqlite:///{HOME}/hub.db"),
    ],
)
@pytest.mark.usefixtures("state_dir")
def test_a_path_outside_the_home_does_not_leave_whatever_stands_before_it(
    make_scene: Callable[..., Scene], told: str, leaves: str
) -> None:
    looked_at = make_scene()
    assert Redactor(looked_at).text(told.format(home=looked_at.home.root)) == leaves
