"""`claudemesh up`, and two people on one host: the whole way of a message by the words of the command line."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from claudemesh.runtime.home import Home, lock_holder
from claudemesh.runtime.patience import wait_until
from tests.integration.test_cli_daemon import WITHIN_S, Shell
from tests.ports import own_address


@pytest.fixture
def listen() -> str:
    return own_address()


@pytest.fixture
def ada(tmp_path: Path) -> Shell:
    return Shell(Home(tmp_path / "ada"))


@pytest.fixture
def bob(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(Home(tmp_path / "bob"))
    yield shell
    if shell.home.meshes():
        shell.run("daemon", "down")


@pytest.fixture
def up(ada: Shell, listen: str) -> Iterator[subprocess.Popen[str]]:
    with ada.start("up", "--listen", listen, "--tcp", "--json") as process:
        try:
            document = ada.read(process)
            assert document["broker_url"] == f"http://{listen}"
            assert document["dashboard"].startswith("http://127.0.0.1:"), "it needs a port, and here it has one"
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0


def children(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.usefixtures("up")
def test_a_message_goes_from_one_to_the_other_and_its_receipts_come_back(ada: Shell, bob: Shell) -> None:
    code = ada.run("mesh", "invite", "local")["code"]
    assert bob.run("mesh", "join", code, "--name", "bob")["role"] == "member"
    bob.run("daemon", "up", "--no-tcp")
    sent = ada.run("send", "bob", "hi \u202e there", "--id", "build-42", "--wait", "delivered")
    assert (sent["client_message_id"], sent["state"]) == ("build-42", "delivered")
    (message,) = bob.run("inbox", "--mark-read")["messages"]
    assert (message["body"], message["client_message_id"]) == ("hi \u202e there", "build-42")
    assert ada.run("send", "bob", "hi \u202e there", "--id", "build-42", "--wait", "read")["duplicate"] is True
    assert ada.run("trace", "build-42")["state"] == "read"
    assert bob.run("trace", message["broker_message_id"])["client_message_id"] == "build-42"
    assert {peer["name"] for peer in ada.run("peer", "list")["peers"]} >= {"bob"}
    assert ada.run("broker", "check") == {"violations": 0, "items": []}


@pytest.mark.usefixtures("up")
def test_a_queue_hands_out_its_work_once(ada: Shell) -> None:
    ada.run("queue", "create", "jobs")
    ada.run("send", "queue:jobs", "do this", "--wait", "accepted")
    leased = ada.run("queue", "work", "jobs")
    assert leased["body"] == "do this"
    assert ada.run("queue", "work", "jobs") is None
    lease = ("--id", leased["broker_message_id"], "--token", str(leased["lease_token"]))
    ada.run("queue", "renew", "jobs", *lease)
    ada.run("queue", "ack", "jobs", *lease)
    assert ada.run("queue", "ack", "jobs", "--id", leased["broker_message_id"], "--token", "99", code=4)["code"]


@pytest.mark.usefixtures("up")
@pytest.mark.prints(
    "claudemesh inbox --follow",
    "claudemesh daemon up",
    "claudemesh daemon restart",
    "claudemesh mesh invite",
    "claudemesh mesh join",
    "claudemesh send",
)
def test_an_inbox_can_be_followed(ada: Shell, bob: Shell) -> None:
    bob.run("mesh", "join", ada.run("mesh", "invite", "local")["code"], "--name", "bob")
    bob.run("daemon", "up", "--no-tcp")
    ada.run("send", "bob", "1", "--wait", "delivered")
    with bob.start("inbox", "--follow", "--json") as following:
        assert bob.read(following)["body"] == "1"
        bob.run("daemon", "restart", "--no-tcp")
        ada.run("send", "bob", "2")
        assert bob.read(following)["body"] == "2"
        following.send_signal(signal.SIGINT)
        following.communicate(timeout=WITHIN_S)
    assert following.returncode == 0


def test_what_dies_is_started_again_and_a_second_up_is_refused(
    ada: Shell, up: subprocess.Popen[str], listen: str
) -> None:
    refused = ada.run("up", "--listen", listen, code=1)
    assert (refused["code"], refused["pid"]) == ("already_running", up.pid)
    for pid in children(up.pid):
        os.kill(pid, signal.SIGKILL)
    before = set(children(up.pid))

    def is_back() -> bool:
        with ada.start("daemon", "status", "--json") as status:
            out, _ = status.communicate(timeout=WITHIN_S)
        return status.returncode == 0 and json.loads(out)["connected"]

    assert wait_until(is_back, WITHIN_S)
    assert set(children(up.pid)).isdisjoint(before)


@pytest.mark.req("C1")
def test_a_daemon_that_is_restarted_stays_with_it(ada: Shell, up: subprocess.Popen[str]) -> None:
    before = ada.run("daemon", "status")["pid"]
    refused = ada.run("daemon", "restart", "--no-tcp", code=2)
    assert f"process {up.pid}" in refused["detail"]
    assert ada.run("daemon", "status")["pid"] == before
    restarted = ada.run("daemon", "restart")["pid"]
    assert restarted != before
    assert restarted in children(up.pid)


@pytest.mark.req("C1")
def test_it_leaves_a_daemon_alone_that_runs_already_and_says_how_to_go_on(ada: Shell, listen: str) -> None:
    with ada.start("up", "--listen", listen, "--json") as process:
        ada.read(process)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=WITHIN_S)
    running = ada.run("daemon", "up", "--no-tcp")["pid"]
    try:
        refused = ada.run("up", "--listen", listen, code=1)
        assert (refused["code"], refused["pid"]) == ("already_running", running)
        assert "`claudemesh daemon down`" in refused["detail"]
        assert ada.run("daemon", "status")["pid"] == running
    finally:
        ada.run("daemon", "down")


@pytest.mark.prints("claudemesh up")
def test_stopped_it_leaves_nothing_and_started_again_it_is_the_same_member(ada: Shell, listen: str) -> None:
    keys = []
    for port in (listen, own_address()):
        with ada.start("up", "--listen", port, "--json") as process:
            assert ada.read(process)["mesh"] == "local"
            keys.append(ada.run("daemon", "status")["member_pubkey"])
            assert wait_until(lambda: ada.run("daemon", "status")["connected"], WITHIN_S)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=WITHIN_S)
        assert process.returncode == 0, err
        assert lock_holder(ada.home.up_lock) is None
        assert lock_holder(ada.home.mesh_dir("local") / "pid") is None
    assert len(set(keys)) == 1


def test_a_port_that_is_taken_is_told_and_nothing_is_made(ada: Shell) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused = ada.run("up", "--listen", f"127.0.0.1:{taken.getsockname()[1]}", code=1)
    assert refused["code"] == "config_invalid"
    assert ada.home.meshes() == []


@pytest.mark.parametrize("where", ["0.0.0.0:7450", "mesh.example.org:7450", "127.0.0.1:0", "7450", "127.0.0.1"])
def test_up_is_for_this_machine_only(ada: Shell, where: str) -> None:
    assert ada.run("up", "--listen", where, code=2)["code"] == "invalid_request"
