"""A real Chromium, without a screen and without a way out."""

import os
import socketserver
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser import scene
from tests.browser.chromium import QUIET, find_chromium


class WayOut(socketserver.ThreadingTCPServer):
    """Stands where the network would be: hangs up on whoever comes, and remembers what was asked first."""

    daemon_threads = True

    def __init__(self) -> None:
        self.requests: list[str] = []
        super().__init__(("127.0.0.1", 0), self._Handler)

    class _Handler(socketserver.StreamRequestHandler):
        server: "WayOut"

        def handle(self) -> None:
            self.server.requests.append(self.rfile.readline().decode(errors="replace").strip())


@pytest.fixture(scope="module")
def way_out() -> Iterator[WayOut]:
    with WayOut() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def browser(way_out: WayOut) -> Iterator[Browser]:
    """For a module, not the session: while Playwright's loop exists, no asynchronous test can run beside it."""
    host, port = way_out.server_address
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=find_chromium(playwright),
            chromium_sandbox=os.geteuid() != 0,  # it cannot have one as root
            args=[*QUIET, f"--proxy-server=http://{host}:{port}"],  # loopback never goes through a proxy
        )
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[scene.Scene]:
    """For the session: it is made of processes, and each test looks at something of its own in it."""
    with scene.played(tmp_path_factory.mktemp("mesh")) as played:
        yield played


@pytest.fixture(scope="session")
def relayed(mesh: scene.Scene) -> Iterator[scene.Relayed]:
    """Have what a relay has queued, too; only for those who look at it, since it takes two processes more."""
    with scene.relayed(mesh) as behind:
        yield behind
