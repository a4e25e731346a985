"""A real Chromium, without a screen and without a way out."""

import os
import shutil
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Playwright, sync_playwright

# Keeps Chromium from asking its makers for most of what it would; the rest meets `WayOut`.
QUIET = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
]


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


def find_chromium(playwright: Playwright) -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    path = playwright.chromium.executable_path
    assert Path(path).exists(), "No Chromium: run `make packages`."
    return path
