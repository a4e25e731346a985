"""What the dashboard's tests look at: a mesh in which much has happened, and some of it to be markup."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from claudemesh.ledger.api import MessageCassette
from tests.browser.stage import Member, Stage, relaying, staged, write_ledger, write_report
from tests.integration.relay_process import Relay
from tests.unit.pipeline.report_sample import sample

# Each would be something else than a text, if it were read by anybody but a person.
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "javascript:alert(3)",
    "<svg onload=alert(4)><a href='https://elsewhere.invalid/'>here</a></svg>",
    "{{constructor.constructor('alert(5)')()}} ${alert(6)}",
    "\u202eevil\u2066\u200b\u0007\U000e0157\u2028\u2029",
)
ALL_OF_IT = " ".join(HOSTILE)
MEGABYTE = "<b>long</b> " * 87_382
TITLES = ("shown", "for mine", "for theirs", "for the picture", ALL_OF_IT)


@dataclass
class Scene:
    stage: Stage

    @property
    def ada(self) -> Member:
        return self.stage.ada

    @property
    def bob(self) -> Member:
        return self.stage["bob"]

    @property
    def eve(self) -> Member:
        """Return somebody who has done nothing yet, and comes when she is wanted."""
        eve = self.stage["eve"]
        if eve.process is None:
            eve.start()
            eve.ready()
        return eve


@dataclass
class Relayed:
    """What is behind Ada's relay: a write in conflict on each task."""

    relay: Relay
    tasks: dict[str, str]  # ids by their titles


@contextmanager
def played(folder: Path) -> Iterator[Scene]:
    with staged(folder, ["ada", "bob", "dana", "eve"], ["ada", "bob"]) as stage:
        scene = Scene(stage)
        _talk(scene)
        write_ledger(scene.ada.home)
        with MessageCassette(db_path=scene.ada.home / "ledger.db") as ledger:
            steps = [{"text": ALL_OF_IT}, {"text": MEGABYTE}]
            ledger.post_message({"jobs": [{"intent": ALL_OF_IT, "steps": steps}]}, HOSTILE[0], "USER", "hostile")
        write_report(scene.ada.home, sample())
        yield scene


@contextmanager
def relayed(scene: Scene) -> Iterator[Relayed]:
    with relaying(scene.stage, TITLES) as (_hub, relay, tasks):
        yield Relayed(relay, tasks)


def _talk(scene: Scene) -> None:
    ada, bob = scene.ada, scene.bob
    ada.send("bob", "how is the build?", client_message_id="question")
    ada.send("dana", "when you are back", client_message_id="for-dana")
    ada.send("bob", ALL_OF_IT)
    ada.client.queue_create("builds")
    ada.send("queue:builds", "build 42")
    (asked, *_) = bob.until("/v1/inbox", lambda page: len(page["messages"]) == 2)["messages"]
    bob.client.inbox_read([asked["broker_message_id"]])
    bob.send("ada", "green", reply_to_id=asked["broker_message_id"])
    bob.client.request("POST", "/v1/profile", {"about": ALL_OF_IT[:200]})
    ada.until("/v1/trace/question", lambda trace: trace["state"] == "acted")
