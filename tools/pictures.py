"""Takes the pictures of the dashboard that the documentation shows: `python -m tools.pictures`.

Real processes, in a directory of their own that is removed at the end: a broker, daemons, a hub and a relay. What
they did is spread over an hour in the watched daemon's files while it is down, since nobody wants to wait for it.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import apsw
from playwright.sync_api import Browser, Page, expect, sync_playwright

from claudemesh.ledger.api import MessageCassette
from tests.browser.chromium import QUIET, find_chromium
from tests.browser.stage import Member, Stage, relaying, staged, write_ledger, write_report
from tests.integration.relay_process import Relay

PICTURES: Final = Path(__file__).parents[1] / "docs" / "pictures"
MEMBERS: Final = ("ada", "builder", "reviewer", "planner", "deploy-eu", "night-watch")
ONLINE: Final = ("ada", "builder", "reviewer", "planner")
HOUR_MS: Final = 3_600_000
SENDS: Final = 420
BYTES_MAX: Final = 300_000

# A row's place in its hour: two slow waves, so that a chart has something to show.
SPREAD: Final = """
UPDATE {table} SET {first} = {first} - :hour + 60000
    + CAST(:hour * (1.0 * (seq - :low) / :rows + 0.055 * sin(13.0 * (seq - :low) / :rows)) AS INTEGER) - 120000,
  {second} = {second} - :hour + 60000
    + CAST(:hour * (1.0 * (seq - :low) / :rows + 0.055 * sin(13.0 * (seq - :low) / :rows)) AS INTEGER) - 120000
    + 3 + (seq * 7) % 9 + CASE WHEN seq % 41 = 0 THEN 20 + seq % 60 ELSE 0 END
WHERE {second} IS NOT NULL
"""


def main() -> int:
    with (
        tempfile.TemporaryDirectory(prefix="cm-pictures-") as folder,
        staged(Path(folder), MEMBERS, ONLINE) as stage,
        relaying(stage, ["Move billing to the new ledger"]) as (_hub, relay, tasks),
        sync_playwright() as playwright,
    ):
        seed(stage)
        browser = playwright.chromium.launch(
            executable_path=find_chromium(playwright), chromium_sandbox=False, args=QUIET
        )
        take(browser, stage.ada, "overview", "light", "dashboard-overview")
        take(browser, stage.ada, f"relay?id={envelope_of(relay, tasks)}", "dark", "dashboard-conflict")
        browser.close()
    return 0


def envelope_of(relay: Relay, tasks: dict[str, str]) -> str:
    (task,) = tasks.values()
    listed = relay.run("outbox", "list", "--json").json["items"]
    return next(str(one["id"]) for one in listed if task in one["request"])


def seed(stage: Stage) -> None:
    ada, builder, reviewer = stage.ada, stage["builder"], stage["reviewer"]
    for name, about in (("builder", "builds and tests"), ("reviewer", "reads every change")):
        stage[name].client.request("POST", "/v1/profile", {"about": about})
    for sender, to in ((ada, ("builder", "reviewer", "planner")), (builder, ("ada",)), (reviewer, ("ada",))):
        sends = [
            {"to": to[i % len(to)], "message": f"step {i}"} for i in range(SENDS if sender is ada else SENDS // 3)
        ]
        sender.client.send_batch(sends)
    ada.until("/v1/health", lambda health: not health["queue_depth"] and not health["inflight"])
    received = 2 * (SENDS // 3)
    ada.until("/v1/inbox?limit=1000", lambda page: len(page["messages"]) == received)
    ada.client.inbox_read(upto=ada.client.inbox(limit=1000)["messages"][-3]["cursor"])
    ada.client.queue_create("builds")
    for i in range(4):
        ada.send("queue:builds", f"build {40 + i}")
    ada.until("/v1/queue/list", lambda answer: answer["queues"][0]["ready"] == 4)  # noqa: PLR2004
    builder.client.queue_work("builds")
    ada.stop()
    spread(ada)
    ada.start()
    ada.ready()
    ada.dead_letter()
    ada.send("deploy-eu", "release 1.4 is signed")
    write_ledger(ada.home)
    with MessageCassette(db_path=ada.home / "ledger.db") as ledger:
        ledger.post_message(
            {"jobs": [{"intent": "compact the archive", "steps": [{}, {}]}]}, "weekly", "SYSTEM", "a"
        )
    write_report(ada.home, report())
    stage["planner"].stop()


def spread(member: Member) -> None:
    for file, table, first, second in (
        ("outbox.db", "outbox", "enqueued_at", "delivered_at"),
        ("inbox.db", "inbox", "accepted_at", "received_at"),
    ):
        connection = apsw.Connection(str(member.state_dir / file))
        ((low, high),) = connection.execute(f"SELECT min(seq), max(seq) FROM {table}").fetchall()  # noqa: S608
        connection.execute(
            SPREAD.format(table=table, first=first, second=second),
            {"hour": HOUR_MS, "low": int(str(low)), "rows": int(str(high)) - int(str(low)) + 1},
        )
        connection.close()


def report() -> dict[str, Any]:
    proofs = {
        "reconciliation": "every total here is the store's own count at the cut",
        "orphans": "what one commit kept together is together",
        "history": "no acknowledged send was lost, and none was doubled",
        "audit": "the chain of the audit log is whole",
    }
    verdicts = [{"name": name, "about": about, "violations": 0, "items": []} for name, about in proofs.items()]
    return {"cut": 12, "at": "2026-01-04T00:00:00Z", "since": None, "ok": True, "verdicts": verdicts, "sources": []}


def take(browser: Browser, member: Member, place: str, scheme: Any, name: str) -> None:  # noqa: ANN401  a word of CSS
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme=scheme)
    page: Page = context.new_page()
    page.goto(f"{member.url}#{member.code()}")
    expect(page.locator(".verdict-words")).to_be_visible()
    page.evaluate("place => { location.hash = place }", f"#/{place}")
    expect(page.locator("#main[aria-busy]")).to_have_count(0)
    expect(page.locator(".detail" if "id=" in place else ".people")).to_be_visible()
    file = PICTURES / f"{name}.png"
    page.screenshot(path=file, full_page=True, animations="disabled")
    context.close()
    size = file.stat().st_size
    if size > BYTES_MAX:
        raise SystemExit(f"{file.name} has {size} bytes, more than {BYTES_MAX}")


if __name__ == "__main__":
    sys.exit(main())
