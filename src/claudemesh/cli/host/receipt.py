"""What an install made that was not there before, so that uninstalling can tell it from what was there and empty.

It is a file in CLAUDEMESH_HOME, written before the files that it is about, and holds nothing of theirs but paths
and names of ours. Without it (another machine, another home) an uninstall takes what is empty without us for ours.
"""

import json
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from claudemesh.cli.host.plan import Made
from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime.home import Home, read_private, write_private


@dataclass
class Receipt:
    files: dict[str, Made] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)

    def made(self, path: Path) -> Made:
        return self.files.get(str(path), Made())


def load_receipt(home: Home) -> Receipt:
    """Read it; an empty one if there is none, or if it cannot be read: it is a help, and no more."""
    try:
        found = json.loads(read_private(home.host_receipt))
        files = {
            path: Made(bool(made["file"]), tuple(tuple(names) for names in made["containers"]))
            for path, made in found["files"].items()
        }
        return Receipt(files, [str(folder) for folder in found["folders"]])
    except (OSError, ConfigError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return Receipt()


def store_receipt(home: Home, receipt: Receipt) -> None:
    """Write it; one that says nothing is removed, and with it a home that holds nothing else."""
    if not receipt.files and not receipt.folders:
        with suppress(FileNotFoundError):
            home.host_receipt.unlink()
        with suppress(OSError):
            home.root.rmdir()
        return
    home.ensure()
    files = {
        path: {"file": made.file, "containers": [list(names) for names in made.containers or ()]}
        for path, made in receipt.files.items()
    }
    document = {"files": files, "folders": receipt.folders}
    write_private(home.host_receipt, json.dumps(document, indent=2).encode() + b"\n")
