"""A mesh to look at: broker, daemons, hub and relay as real processes, each started by its command, and a ledger.

Every daemon serves its dashboard at a port of its own, which stays when it is started again.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from claudemesh.cli import enrol
from claudemesh.daemon import identity
from claudemesh.daemon.client import Client
from claudemesh.ledger.api import MessageCassette
from claudemesh.pipeline.lake import Cut, Lake, make_private
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.home import Home
from claudemesh.runtime.patience import wait_until
from claudemesh.wire.invite import Invite
from claudemesh.wire.signing import invite_bytes
from tests.integration.hub_process import Hub
from tests.integration.relay_process import Relay
from tests.ports import own_address, own_port

MESH = "demo"
STAGING_S = 60.0
PROGRAM = [sys.executable, "-m", "claudemesh.cli.main"]


@dataclass
class Member:
    """Somebody with a home and a daemon, which can be killed and started again."""

    name: str
    home: Path
    process: "subprocess.Popen[bytes] | None" = None
    _client: Client | None = None

    @property
    def state_dir(self) -> Path:
        return Home(self.home).mesh_dir(MESH)

    @property
    def client(self) -> Client:
        self._client = self._client or Client(self.state_dir / "sock", STAGING_S)
        return self._client

    def start(self) -> None:
        self.process = start(self.home, "daemon", "up", "--foreground", "--persistent", "--tcp", "--mesh", MESH)

    def ready(self) -> None:
        assert wait_until(lambda: _is_connected(self.client), STAGING_S), log_of(self.home)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        end(self.process, number)
        self.process = None

    def link(self) -> str:
        """Return a link to the dashboard, as the command prints it."""
        said = subprocess.run(
            [*PROGRAM, "dashboard", "--json", "--mesh", MESH],
            env=environment(self.home),
            check=True,
            capture_output=True,
            timeout=STAGING_S,
        )
        url: str = json.loads(said.stdout)["url"]
        return url

    def code(self) -> str:
        """Return what the same link is made of, without a process for it."""
        code: str = self.client.request("POST", "/v1/dashboard/code", {})[1]["code"]
        return code

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{(self.state_dir / 'http.port').read_text(encoding='utf-8').strip()}/ui/"

    def send(self, to: str, message: str, **more: Any) -> Any:  # noqa: ANN401  a send's own fields
        return self.client.request("POST", "/v1/send", {"to": to, "message": message, **more})[1]

    def receive(self, sender: "Member", message: str) -> int:
        """Have a message come, and return how many are unread then."""
        sent = sender.send(self.name, message)["client_message_id"]
        sender.until(f"/v1/trace/{sent}", lambda trace: trace["state"] == "delivered")
        unread: int = self.client.request("GET", "/v1/dashboard/overview")[1]["unread"]
        return unread

    def dead_letter(self) -> str:
        """Have a message given up, and return its id: there is no such topic."""
        sent: str = self.send("#nowhere", "is anybody there?")["client_message_id"]
        self.until(f"/v1/outbox/{sent}", lambda found: found["row"]["status"] == "dead")
        return sent

    def until(self, path: str, is_so: Callable[[Any], bool]) -> Any:  # noqa: ANN401  any answer
        """Ask until it is so, and return what it is then."""
        found: list[Any] = []

        def ask() -> bool:
            found[:] = [self.client.request("GET", path)[1]]
            return is_so(found[0])

        assert wait_until(ask, STAGING_S), (path, found)
        return found[0]


@dataclass
class Stage:
    folder: Path
    listen: str = field(default_factory=own_address)
    broker: "subprocess.Popen[bytes] | None" = None
    members: dict[str, Member] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Member:
        return self.members[name]

    @property
    def ada(self) -> Member:
        return self.members["ada"]

    def start_broker(self) -> None:
        home = self.folder / "broker"
        home.mkdir(mode=0o700, exist_ok=True)
        self.broker = start(home, "broker", "serve", "--listen", self.listen)
        url = f"http://{self.listen}"
        assert wait_until(lambda: _answers(url), STAGING_S), log_of(home)

    def stop_broker(self, number: signal.Signals = signal.SIGTERM) -> None:
        end(self.broker, number)
        self.broker = None

    def enrol(self, *names: str) -> None:
        """Make the mesh, whose owner is the first."""
        clock, url = SystemClock(), f"http://{self.listen}"
        for name in names:
            self.members[name] = Member(name, self.folder / name)
        owner, *others = (Home(self.folder / name) for name in names)
        made = enrol.create(enrol.Enrolment(owner, names[0], clock), MESH, url)
        keys = identity.load_keys(owner.mesh_dir(MESH))
        unsigned: dict[str, Any] = {
            "broker_url": url,
            "mesh_id": made.mesh_id,
            "slug": MESH,
            "invite_id": "stage",
            "uses": len(names),
            "expires_at": clock.wall_ms() + 3_600_000,
            "broker_key": made.broker_key,
            "inviter_pubkey": keys.pubkey,
        }
        signature = keys.sign(invite_bytes(Invite(**unsigned)))
        for home, name in zip(others, names[1:], strict=True):
            enrol.join(enrol.Enrolment(home, name, clock), Invite(**unsigned, signature=signature))
        for name in names:
            config = f"[ipc]\nport = {own_port()}\n"
            (self[name].state_dir / "config.toml").write_text(config, encoding="utf-8")

    def close(self) -> None:
        for member in self.members.values():
            member.stop()
        self.stop_broker()


@contextmanager
def staged(folder: Path, names: Sequence[str], online: Sequence[str]) -> Iterator[Stage]:
    """Have a broker and these members, of whom some have a daemon running; the first is Ada."""
    stage = Stage(folder)
    try:
        stage.start_broker()
        stage.enrol(*names)
        for name in online:
            stage[name].start()
        for name in online:
            stage[name].ready()
        yield stage
    finally:
        stage.close()


@contextmanager
def relaying(stage: Stage, titles: Sequence[str]) -> Iterator[tuple[Hub, Relay, dict[str, str]]]:
    """Have a hub, a relay before it in Ada's home that holds a write in conflict on each task, and their ids."""
    folder = stage.folder / "hub"
    folder.mkdir(mode=0o700)
    hub = Hub(folder, f"sqlite:///{folder / 'hub.db'}")
    relay = Relay(stage.ada.home, f"http://{hub.listen}")
    with ExitStack() as stack:
        with hub.serving():
            seen = [hub.make("/tasks/", {"title": title, "status": "open"}) for title in titles]
            for row in seen:
                hub.ask("PATCH", f"/tasks/{row['id']}", {"status": "blocked"})
        stack.enter_context(relay.serving())
        for row in seen:  # as they were seen, before they were changed
            body = {"status": "done", "expected_updated_at": row["updated_at"]}
            relay.queue("PATCH", f"/tasks/{row['id']}", body)
        stack.enter_context(hub.serving())
        relay.run("outbox", "replay")
        assert wait_until(lambda: count_conflicts(relay) == len(titles), STAGING_S)
        yield hub, relay, {row["title"]: row["id"] for row in seen}


def count_conflicts(relay: Relay) -> int:
    conflicts: int = relay.run("outbox", "status", "--json").json["conflicts"]
    return conflicts


def write_report(home: Path, document: dict[str, Any]) -> None:
    """Put a report where `pipeline report` leaves it: beside a cut of the lake in this home."""
    lake = Lake(home / "lake")
    cut = Cut(number=document["cut"], at_ms=SystemClock().wall_ms(), sources={}, read=[])
    make_private(lake.root / "_cuts")
    lake.publish(cut)
    folder = lake.gold("report", cut.number)
    make_private(folder)
    (folder / "report.json").write_text(json.dumps(document), encoding="utf-8")


def write_ledger(home: Path) -> None:
    """Write a run down: a step that is done, one that is held, one whose lease ran out soon, and two that wait."""
    steps = [{"build": "wheel"}, {"run": "tests"}, {"sign": "artefacts"}, {"publish": "docs"}]
    with MessageCassette(db_path=home / "ledger.db") as ledger:
        ledger.post_message({"jobs": [{"intent": "release 1.4", "steps": steps}]}, "nightly", "PLANNER", "release")
        ledger.post_message(
            {"jobs": [{"intent": "rotate keys", "steps": [{"who": "all"}]}]}, "weekly", "USER", "keys"
        )
        done = ledger.claim_step("nightly", "worker-1", 300)
        token, receipt = done["fencing_token"], {"wheel": "claudemesh-1.4.whl", "seconds": 41}
        ledger.complete_step("nightly", done["step_id"], "worker-1", token, receipt, "SUCCESS")
        ledger.claim_step("nightly", "worker-2", 7_200)


# --- processes -----------------------------------------------------------------------------------------


def environment(home: Path) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("CLAUDEMESH_", "STATEHUB_"))}
    return {**kept, "CLAUDEMESH_HOME": str(home), "NO_COLOR": "1"}


def start(home: Path, *words: str) -> "subprocess.Popen[bytes]":
    with (home / "stage.log").open("ab") as log:
        return subprocess.Popen(
            [*PROGRAM, *words], env=environment(home), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )


def end(process: "subprocess.Popen[bytes] | None", number: signal.Signals = signal.SIGTERM) -> None:
    if process is None:
        return
    process.send_signal(number)
    process.wait(STAGING_S)


def log_of(home: Path) -> str:
    return (home / "stage.log").read_text(encoding="utf-8")


def _is_connected(client: Client) -> bool:
    try:
        return bool(client.health()["connected"])
    except Exception:  # noqa: BLE001  not there yet, in whichever way
        return False


def _answers(url: str) -> bool:
    try:
        return enrol.exchange(url, "/v1/health")[0] == 200
    except Exception:  # noqa: BLE001  as above
        return False
