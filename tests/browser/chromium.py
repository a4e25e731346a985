"""Which Chromium is driven, and how it is kept from asking anybody for anything."""

import shutil
from pathlib import Path

from playwright.sync_api import Playwright

# Keeps Chromium from asking its makers for most of what it would; the rest meets `WayOut`.
QUIET = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
]


def find_chromium(playwright: Playwright) -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    path = playwright.chromium.executable_path
    assert Path(path).exists(), "No Chromium: run `make packages`."
    return path
