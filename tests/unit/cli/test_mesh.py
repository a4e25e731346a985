"""A member is made by a broker's yes: the key outlives a lost answer, and no invite is believed too far."""

import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from claudemesh.cli import enrol
from claudemesh.daemon import identity
from claudemesh.kernel.errors import BrokerUnreachable
from claudemesh.runtime.home import Home, InstanceLock, write_private
from claudemesh.runtime.keys import KeyPair, verify
from claudemesh.wire.invite import CreateMesh, Invite, Membership, Redeem, parse_code, render_code
from claudemesh.wire.signing import create_mesh_bytes, invite_bytes, redeem_bytes
from tests.unit.cli.conftest import Run, join_mesh
from tests.unit.cli.scripted import Asked, ScriptedDaemon, refuse, respond, scripted_daemon

BROKER_KEY = "cd" * 32


@pytest.fixture
def broker() -> Iterator[ScriptedDaemon]:
    with scripted_daemon(None) as broker:
        broker.on("POST", "/v1/meshes", create).on("POST", "/v1/invites/redeem", redeem)
        yield broker


def answer(slug: str, name: str, **changed: str) -> bytes:
    given = {
        "mesh_id": "M1",
        "slug": slug,
        "member_id": "P1",
        "name": name,
        "role": "owner",
        "broker_key": BROKER_KEY,
    }
    return respond(201, msgspec.to_builtins(Membership(**(given | changed))))


def create(asked: Asked) -> bytes:
    request = msgspec.json.decode(asked.body, type=CreateMesh)
    if not verify(request.member_pubkey, create_mesh_bytes(request), request.signature):
        return refuse(401, "unauthenticated")
    return answer(request.slug, request.name)


def redeem(asked: Asked) -> bytes:
    request = msgspec.json.decode(asked.body, type=Redeem)
    invite = request.invite
    if not verify(request.member_pubkey, redeem_bytes(request), request.signature):
        return refuse(401, "unauthenticated")
    if not verify(invite.inviter_pubkey, invite_bytes(invite), invite.signature):
        return refuse(401, "unauthenticated")
    return answer(invite.slug, request.name, mesh_id=invite.mesh_id, role="member", broker_key=invite.broker_key)


def keys_shown(broker: ScriptedDaemon) -> list[str]:
    return [asked.json["member_pubkey"] for asked in broker.asked]


# --- create ----------------------------------------------------------------------------------------------


@pytest.mark.req("I3")
@pytest.mark.prints("claudemesh mesh create")
def test_a_mesh_is_made_by_a_signed_request_and_its_owner_is_kept(
    run: Run, home: Home, broker: ScriptedDaemon
) -> None:
    ran = run("mesh", "create", "demo", "--broker", broker.url, "--name", "ada", "--json")
    assert ran.code == 0
    assert (ran.json["slug"], ran.json["name"], ran.json["role"]) == ("demo", "ada", "owner")
    loaded = identity.load(home.mesh_dir("demo"), lambda: "I1")
    assert loaded.joined.broker_url == broker.url
    assert keys_shown(broker) == [loaded.keys.pubkey]
    assert "seed" not in ran.out
    assert list((home.root / "pending").iterdir()) == []
    assert run("mesh", "list", "--json").json["meshes"][0]["daemon"] == "stopped"


@pytest.mark.req("C1")
def test_a_membership_that_is_damaged_hides_none_of_the_others(run: Run, home: Home) -> None:
    join_mesh(home, "one")
    join_mesh(home, "two")
    (home.mesh_dir("one") / "membership.json").write_text("{")
    ran = run("mesh", "list", "--json")
    assert (ran.code, [one["slug"] for one in ran.json["meshes"]]) == (1, ["two"])
    assert [one["slug"] for one in ran.json["damaged"]] == ["one"]
    assert "claudemesh doctor --mesh one" in run("mesh", "list").err


@pytest.mark.req("I3")
def test_made_again_it_is_the_same_member(run: Run, broker: ScriptedDaemon) -> None:
    for _ in range(2):
        assert run("mesh", "create", "demo", "--broker", broker.url).code == 0
    assert len(set(keys_shown(broker))) == 1


@pytest.mark.req("I3")
@pytest.mark.parametrize("lost", [None, refuse(503, "store_unavailable")])
def test_after_a_lost_answer_the_same_key_asks_again_and_until_then_nothing_is_joined(
    run: Run, home: Home, broker: ScriptedDaemon, lost: bytes | None
) -> None:
    broker.on("POST", "/v1/meshes", lost, create)
    assert run("mesh", "create", "demo", "--broker", broker.url).code != 0
    assert home.meshes() == []
    assert run("mesh", "create", "demo", "--broker", broker.url).code == 0
    assert home.meshes() == ["demo"]
    assert len(keys_shown(broker)) == 2
    assert len(set(keys_shown(broker))) == 1


def test_a_crash_between_the_answer_and_the_membership_is_taken_up(
    run: Run, home: Home, broker: ScriptedDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(identity, "record_host", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
        assert run("mesh", "create", "demo", "--broker", broker.url).code == 1
    assert home.meshes() == []
    assert run("mesh", "create", "demo", "--broker", broker.url).code == 0
    assert len(set(keys_shown(broker))) == 1


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let no time pass, and tell how much would have."""
    waits: list[float] = []
    monkeypatch.setattr(enrol, "pause", waits.append)
    return waits


@pytest.mark.usefixtures("waits")
def test_a_broker_that_cannot_be_reached_is_3_and_one_that_refuses_says_why(
    run: Run, broker: ScriptedDaemon
) -> None:
    broker.on("POST", "/v1/meshes", refuse(409, "name_taken"))
    assert run("mesh", "create", "demo", "--broker", broker.url, "--json").code == 4
    url = broker.url
    broker.stop()
    ran = run("mesh", "create", "demo", "--broker", url, "--json")
    assert (ran.code, ran.json["code"]) == (3, "broker_unreachable")
    broker.start()


@pytest.mark.req("C1")
@pytest.mark.parametrize(("starts_after", "lines"), [(2, 0), (6, 1)])
def test_a_broker_that_is_just_being_started_is_waited_for(
    run: Run, broker: ScriptedDaemon, monkeypatch: pytest.MonkeyPatch, starts_after: int, lines: int
) -> None:
    url = broker.url
    broker.stop()
    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == starts_after:
            broker.start()

    monkeypatch.setattr(enrol, "pause", pause)
    ran = run("mesh", "create", "demo", "--broker", url, "--name", "ada")
    assert (ran.code, len(waits)) == (0, starts_after)
    assert ran.err.count("\n") == lines, "a second is waited without a word"


def test_a_refusal_is_waited_out_for_seconds_on_this_machine_and_not_at_all_elsewhere(
    run: Run, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise BrokerUnreachable("refused") from ConnectionRefusedError()

    monkeypatch.setattr(enrol, "exchange", refused)
    assert run("mesh", "create", "demo", "--broker", "https://mesh.example.org").code == 3
    assert waits == []
    assert run("mesh", "create", "demo", "--broker", "http://localhost:7450").code == 3
    assert sum(waits) == pytest.approx(5)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (respond(501, content_type="text/html"), "config_invalid"),
        (respond(404, {"detail": "Not Found"}), "config_invalid"),
        (respond(200, ["hello"]), "config_invalid"),
        (respond(502, content_type="text/html"), "dependency_failed"),
    ],
)
def test_what_is_no_broker_is_called_so_and_a_proxy_before_one_is_not(
    run: Run, broker: ScriptedDaemon, said: bytes, code: str
) -> None:
    broker.on("POST", "/v1/meshes", said)
    ran = run("mesh", "create", "demo", "--broker", broker.url, "--json")
    assert (ran.code, ran.json["code"]) == (1 if code == "config_invalid" else 3, code)
    assert ("is no claudemesh broker" in ran.err) is (ran.code == 1)


def test_a_member_that_asks_for_another_name_is_told_that_it_keeps_its_own(
    run: Run, home: Home, broker: ScriptedDaemon
) -> None:
    join_mesh(home, "demo", broker.url)
    broker.on("POST", "/v1/meshes", answer("demo", "ada"))
    ran = run("mesh", "create", "demo", "--broker", broker.url, "--name", "zed", "--json")
    assert (ran.code, ran.json["name"]) == (0, "ada")
    assert "you were ada in it already" in ran.err
    assert run("mesh", "create", "demo", "--broker", broker.url, "--name", "ada").err == ""
    assert run("mesh", "create", "demo", "--broker", broker.url).err == ""


@pytest.mark.parametrize(
    "said", [answer("other", "ada"), answer("demo", "ada", broker_key="none"), respond(200, {"a": 1}), respond(200)]
)
def test_an_answer_that_is_not_for_this_mesh_joins_nothing(
    run: Run, home: Home, broker: ScriptedDaemon, said: bytes
) -> None:
    broker.on("POST", "/v1/meshes", said)
    assert run("mesh", "create", "demo", "--broker", broker.url).code == 1
    assert home.meshes() == []


def test_a_redirect_is_not_followed(run: Run, broker: ScriptedDaemon) -> None:
    broker.on("POST", "/v1/meshes", respond(307, None, Location=f"{broker.url}/v1/elsewhere"))
    assert run("mesh", "create", "demo", "--broker", broker.url).code == 1
    assert len(broker.asked) == 1


def test_a_slug_that_is_joined_elsewhere_is_not_taken_over(run: Run, home: Home, broker: ScriptedDaemon) -> None:
    join_mesh(home, "demo", "http://127.0.0.1:1")
    ran = run("mesh", "create", "demo", "--broker", broker.url)
    assert ran.code == 1
    assert "leave it first" in ran.err
    assert broker.asked == []


def test_an_admin_token_comes_from_a_private_file_only(run: Run, broker: ScriptedDaemon, tmp_path: Path) -> None:
    write_private(tmp_path / "token", b"admin-secret\n")
    words = ("mesh", "create", "demo", "--broker", broker.url, "--admin-token-file", str(tmp_path / "token"))
    assert run(*words).code == 0
    assert broker.asked[0].headers["authorization"] == "Bearer admin-secret"
    (tmp_path / "token").chmod(0o644)
    assert run(*words).code == 1
    (tmp_path / "token").unlink()
    assert run(*words).code == 2


# --- invite and join -------------------------------------------------------------------------------------


@pytest.mark.req("I3")
def test_an_invite_is_made_without_the_broker_and_signed(run: Run, home: Home) -> None:
    keys = join_mesh(home, "demo")
    ran = run("mesh", "invite", "demo", "--uses", "3", "--expires", "2h", "--json")
    invite = parse_code(ran.json["code"])
    assert verify(keys.pubkey, invite_bytes(invite), invite.signature)
    assert (invite.inviter_pubkey, invite.slug, invite.uses) == (keys.pubkey, "demo", 3)
    assert ran.json["expires_at"] == invite.expires_at
    assert run("mesh", "invite", "demo").out.strip()  # nothing but the code, for $(…)
    assert run("mesh", "invite", "other").code == 2


def test_an_invite_is_for_the_mesh_that_is_meant_as_everywhere_else(
    run: Run, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    join_mesh(home, "demo")
    assert run("mesh", "invite", "--json").json["slug"] == "demo"
    join_mesh(home, "other")
    ran = run("mesh", "invite", "--json")
    assert (ran.code, ran.json["code"]) == (2, "invalid_request")
    assert "demo, other" in ran.json["detail"]
    assert run("mesh", "invite", "--mesh", "other", "--json").json["slug"] == "other"
    monkeypatch.setenv("CLAUDEMESH_MESH", "other")
    assert run("mesh", "invite", "--json").json["slug"] == "other"
    assert run("mesh", "invite", "demo", "--json").json["slug"] == "demo"


def make_plain_member(home: Home) -> None:
    state_dir = home.mesh_dir("demo")
    member = msgspec.structs.replace(identity.load_membership(state_dir), role="member")
    identity.store(state_dir, identity.load_keys(state_dir), member)


@pytest.mark.req("I3")
def test_a_plain_member_gets_no_code_that_nobody_could_use_unless_it_knows_better(run: Run, home: Home) -> None:
    join_mesh(home, "demo")
    make_plain_member(home)
    ran = run("mesh", "invite", "demo", "--json")
    assert (ran.code, ran.json["code"]) == (1, "forbidden")
    assert "--anyway" in ran.err
    assert parse_code(run("mesh", "invite", "demo", "--anyway", "--json").json["code"]).slug == "demo"


@pytest.fixture
def code(home: Home, run: Run, broker: ScriptedDaemon, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an invite of somebody else's home."""
    inviter = Home(home.root.with_name("inviter"))
    join_mesh(inviter, "demo", broker.url)
    with monkeypatch.context() as patched:
        patched.setenv("CLAUDEMESH_HOME", str(inviter.root))
        return str(run("mesh", "invite", "demo", "--json").json["code"])


@pytest.mark.req("I3")
def test_a_code_makes_a_member_and_again_the_same_one(
    run: Run, home: Home, broker: ScriptedDaemon, code: str
) -> None:
    broker.on("POST", "/v1/invites/redeem", None, redeem)
    assert run("mesh", "join", code, "--name", "bob").code == 3
    assert home.meshes() == []
    for _ in range(2):
        ran = run("mesh", "join", code, "--name", "bob", "--json")
        assert ran.code == 0
    assert (ran.json["name"], ran.json["slug"], ran.json["role"]) == ("bob", "demo", "member")
    assert len(set(keys_shown(broker))) == 1


def test_a_code_may_come_by_standard_input(run: Run, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{code}\n"))
    assert run("mesh", "join", "-", "--name", "bob").code == 0


def changed(code: str, **fields: Any) -> str:  # noqa: ANN401 - of whatever type the field has
    return render_code(msgspec.structs.replace(parse_code(code), **fields))


def signed(invite: Invite, **fields: Any) -> str:  # noqa: ANN401 - as above
    """Change an invite, and sign it anew with a key of one's own."""
    keys = KeyPair.generate()
    mine = msgspec.structs.replace(invite, inviter_pubkey=keys.pubkey, **fields)
    return render_code(msgspec.structs.replace(mine, signature=keys.sign(invite_bytes(mine))))


@pytest.mark.req("I3")
def test_a_code_cannot_move_a_member_to_another_broker(run: Run, home: Home, code: str) -> None:
    join_mesh(home, "demo")
    before = identity.load_membership(home.mesh_dir("demo"))
    moving = signed(parse_code(code), mesh_id=before.mesh_id, broker_url="http://127.0.0.1:1", broker_key="e" * 64)
    assert run("mesh", "join", moving, "--name", "bob").code == 1
    assert identity.load_membership(home.mesh_dir("demo")) == before


@pytest.mark.parametrize(
    "fields",
    [
        {"slug": "../../etc"},
        {"slug": ""},
        {"broker_url": "http://example.org"},
        {"broker_url": "file:///etc/passwd"},
    ],
)
def test_a_hostile_code_leads_nowhere(run: Run, home: Home, broker: ScriptedDaemon, code: str, fields: Any) -> None:  # noqa: ANN401
    assert run("mesh", "join", changed(code, **fields), "--name", "bob").code == 2
    assert home.meshes() == []
    assert broker.asked == []


@pytest.mark.parametrize("what", ["mesh_id", "slug", "broker_key"])
def test_a_broker_that_answers_for_another_mesh_is_not_believed(
    run: Run, home: Home, broker: ScriptedDaemon, code: str, what: str
) -> None:
    def lie(asked: Asked) -> bytes:
        invite = msgspec.json.decode(asked.body, type=Redeem).invite
        told = {"mesh_id": invite.mesh_id, "slug": invite.slug, "broker_key": invite.broker_key} | {what: "ee" * 16}
        return answer(name="bob", **told)

    broker.on("POST", "/v1/invites/redeem", lie)
    assert run("mesh", "join", code, "--name", "bob").code == 1
    assert home.meshes() == []


def test_another_mesh_of_the_same_name_is_not_overwritten(run: Run, home: Home, code: str) -> None:
    keys = join_mesh(home, "demo")
    forged = run("mesh", "join", changed(code, mesh_id="another"), "--name", "bob")
    assert forged.code == 2, "a field that was changed is not signed"
    ran = run("mesh", "join", signed(parse_code(code), mesh_id="another"), "--name", "bob")
    assert ran.code == 1
    assert identity.load_keys(home.mesh_dir("demo")).pubkey == keys.pubkey


@pytest.mark.parametrize("name", ["", "a\nb", "#ops", "queue:x", "\u202e", "x" * 65])
def test_a_name_that_nobody_could_type_is_refused_before_it_is_asked_for(
    run: Run, broker: ScriptedDaemon, code: str, name: str
) -> None:
    assert run("mesh", "join", code, "--name", name).code == 2
    assert broker.asked == []


# --- leaving, copies -------------------------------------------------------------------------------------


def test_a_mesh_that_is_left_is_kept_aside(run: Run, home: Home) -> None:
    join_mesh(home, "demo")
    ran = run("mesh", "leave", "--json")
    assert ran.code == 0
    assert home.meshes() == []
    assert (Path(ran.json["kept_at"]) / "keypair.json").exists()
    assert ran.json["told_broker"] is False
    assert "still counts you as a member" in ran.err


@pytest.mark.req("P5")
def test_whoever_leaves_and_stays_a_member_is_not_seen_as_there(
    run: Run, home: Home, daemon: ScriptedDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claudemesh.cli.daemon.stop_daemon", lambda _: 1)
    daemon.on("GET", "/v1/health", respond(200, {"queue_depth": 0, "inflight": 0, "member_pubkey": "ab" * 32}))
    daemon.on("POST", "/v1/member/revoke", refuse(403, "forbidden", detail="a mesh keeps its last owner"))
    daemon.on("POST", "/v1/presence/end", respond(200, {}))
    with InstanceLock(home.mesh_dir("demo") / "pid"):
        ran = run("mesh", "leave", "demo", "--json")
    assert (ran.code, ran.json["told_broker"]) == (0, False)
    assert [asked.path for asked in daemon.asked][-2:] == ["/v1/member/revoke", "/v1/presence/end"]


@pytest.mark.parametrize("words", [[], ["--force"]])
def test_a_mesh_whose_daemon_up_keeps_running_is_not_left(run: Run, home: Home, words: list[str]) -> None:
    join_mesh(home, "local")
    with InstanceLock(home.up_lock):
        ran = run("mesh", "leave", "local", *words, "--json")
    assert (ran.code, ran.json["code"], ran.json["pid"]) == (4, "state_refused", os.getpid())
    assert f"`claudemesh up` would start its daemon again: stop that first (process {os.getpid()})" in ran.err
    assert home.meshes() == ["local"]


def test_up_keeps_from_leaving_no_mesh_but_its_own(run: Run, home: Home) -> None:
    join_mesh(home, "demo")
    with InstanceLock(home.up_lock):
        assert run("mesh", "leave", "demo").code == 0
    assert home.meshes() == []


def test_what_is_not_sent_yet_keeps_from_leaving(run: Run, home: Home, daemon: ScriptedDaemon) -> None:
    daemon.on("GET", "/v1/health", respond(200, {"queue_depth": 2, "inflight": 1}))
    with InstanceLock(home.mesh_dir("demo") / "pid"):
        ran = run("mesh", "leave", "demo", "--json")
    assert ran.code == 4
    assert ran.json["waiting"] == 3
    assert home.meshes() == ["demo"]


def outbox_of(state_dir: Path) -> None:
    for name in ("outbox.db", "outbox.db-wal", "inbox.db", "instance_id"):
        write_private(state_dir / name, name.encode())


@pytest.mark.req("D16")
@pytest.mark.prints("claudemesh daemon remint")
def test_a_copy_becomes_a_member_of_its_own_and_sends_nothing_of_the_original(
    run: Run, home: Home, broker: ScriptedDaemon
) -> None:
    old = join_mesh(home, "demo", broker.url)
    state_dir = home.mesh_dir("demo")
    outbox_of(state_dir)
    broker.on("POST", "/v1/invites/redeem", None, redeem)
    assert run("daemon", "remint").code == 3
    assert (state_dir / "outbox.db").exists()
    assert identity.load_keys(state_dir).pubkey == old.pubkey
    ran = run("daemon", "remint", "--json")
    assert ran.code == 0
    assert ran.json["name"] == "ada-2"
    new = identity.load(state_dir, lambda: "NEW")
    assert (new.keys.pubkey != old.pubkey, new.instance_id, new.joined.role) == (True, "NEW", "member")
    assert keys_shown(broker) == [new.keys.pubkey] * 2
    assert not (state_dir / "outbox.db").exists()
    kept = Path(ran.json["kept_at"])
    assert {path.name for path in kept.iterdir()} == {
        "outbox.db",
        "outbox.db-wal",
        "inbox.db",
        "instance_id",
        "keypair.json",
    }


def test_a_copy_that_may_not_invite_needs_a_code_and_one_of_its_mesh(
    run: Run, home: Home, broker: ScriptedDaemon, code: str
) -> None:
    join_mesh(home, "demo", broker.url)
    make_plain_member(home)
    assert run("daemon", "remint").code == 2
    assert run("daemon", "remint", "--code", changed(code, mesh_id="other")).code == 2
    assert run("daemon", "remint", "--code", code, "--name", "copy").code == 0


def test_a_host_is_accepted(run: Run, home: Home) -> None:
    join_mesh(home, "demo")
    write_private(home.mesh_dir("demo") / "host_fingerprint.json", b'{"fingerprint": "00", "made_of": []}')
    assert run("daemon", "accept-host", "--json").json["fingerprint"] == identity.read_host().fingerprint
    assert identity.judge_host(home.mesh_dir("demo"), "refuse") in ("same", "unknown")
