"""A support bundle: what somebody else needs to help, in one file that only its owner reads, and no secret in it.

Never in it: bodies, meta, keys, tokens, invite codes, and names of files beyond our own. It is put together from
figures, and from texts that went through `redaction`; no file is copied as it is.
"""

import io
import json
import os
import platform
import stat
import sys
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from claudemesh.cli.doctor.checks.program import EXTRAS, installed
from claudemesh.cli.doctor.checks.stores import Store, stores
from claudemesh.cli.doctor.model import Report
from claudemesh.cli.doctor.redaction import Redactor
from claudemesh.cli.doctor.runner import explain
from claudemesh.cli.doctor.scene import Scene
from claudemesh.cli.settings_files import SettingsFile
from claudemesh.kernel.errors import MeshError
from claudemesh.runtime.variables import trace
from claudemesh.storage.sqlite.inspect import count_rows, library_version

LOG_BYTES_MAX: Final = 256 << 10
LOG_LINES_MAX: Final = 500
FOLDER: Final = "claudemesh-doctor"

_LIBRARIES: Final = ("apsw", "click", "msgspec", "orjson", "pynacl", "uvicorn", "uvloop", "websockets")


def choose_path(scene: Scene, asked: str) -> Path:
    """Return where the bundle goes: as asked, into a folder that was named, or into the home."""
    stamp = datetime.fromtimestamp(scene.clock.wall_ms() / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    name = f"doctor-{stamp}.tar.gz"
    if not asked:
        return scene.home.root / name
    return Path(asked) / name if Path(asked).is_dir() else Path(asked)


def write(path: Path, scene: Scene, report: Report) -> None:
    """Write the bundle where nothing is yet, for its owner alone."""
    packed = _pack(scene, dict(contents(scene, report)))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - of a descriptor, which Path cannot open
        file.write(packed)


def contents(scene: Scene, report: Report) -> Iterator[tuple[str, bytes]]:
    """Yield every file of the bundle, by its name."""
    redactor = Redactor(scene)
    documents = {
        "versions": _versions(),
        "doctor": report.document(),
        "settings": {"surroundings": _surroundings(scene), "files": [_settings(file) for file in scene.files]},
        "stores": {store.title: _store(scene, store) for store in stores(scene) if store.path.exists()},
        "daemons": {slug: _daemon(scene, slug) for slug in scene.meshes},
    }
    for name, document in documents.items():
        yield (
            f"{name}.json",
            json.dumps(redactor.value(document, is_declared=name == "settings"), indent=1).encode(),
        )
    for name, text in _metrics(scene, redactor):
        yield f"metrics/{name}.txt", "\n".join(map(redactor.text, text.splitlines())).encode()
    logs = [(f"daemon-{slug}", scene.home.mesh_dir(slug) / "daemon.log") for slug in scene.meshes]
    for name, path in [*logs, ("relay", scene.home.edge_dir / "edge.log")]:
        lines = list(tail(path, redactor))
        if lines:
            yield f"logs/{name}.jsonl", "\n".join(lines).encode()


def _pack(scene: Scene, files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{FOLDER}/{name}")
            member.size, member.mode, member.mtime = len(content), 0o600, scene.clock.wall_ms() // 1000
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


# --- what is in it -------------------------------------------------------------------------------------


def _versions() -> dict[str, Any]:
    return {
        "claudemesh": installed("claudemesh"),
        "python": sys.version.split()[0],
        "sqlite": library_version(),
        "system": [platform.system(), platform.release(), platform.machine()],
        "libraries": {name: installed(name) for name in _LIBRARIES},
        "extras": {name: installed(package) for name, package in EXTRAS.items()},
    }


def _surroundings(scene: Scene) -> dict[str, Any]:
    found = trace(scene.around, scene.environment)
    return {name: {"value": one.value, "source": one.source._asdict()} for name, one in found.items()}


def _settings(file: SettingsFile) -> dict[str, Any]:
    return {
        "of": file.title,
        "exists": file.path.exists(),
        "settings": {
            setting.name: {"value": value, "source": source._asdict()} for setting, value, source in file.in_force()
        },
        "problems": file.loaded.problems,
    }


def _store(scene: Scene, store: Store) -> dict[str, Any]:
    """Return a store in figures."""
    try:
        with scene.looking(store.path) as connection:
            return {
                "bytes": store.path.stat().st_size,
                "schema_version": connection.pragma("user_version"),
                "application_id": connection.pragma("application_id"),
                "rows": count_rows(connection),
            }
    except (MeshError, OSError) as error:
        return {"error": explain(error)}


def _daemon(scene: Scene, slug: str) -> dict[str, Any]:
    answer = scene.answer(slug)
    return {"pid": scene.holder(slug), "health": answer if isinstance(answer, dict) else explain(answer)}


def _metrics(scene: Scene, redactor: Redactor) -> Iterator[tuple[str, str]]:
    for slug in scene.meshes:
        if scene.health(slug) is not None:
            try:
                with scene.client(slug) as client:
                    yield f"daemon-{slug}", client.metrics()
            except (MeshError, OSError):
                continue
    if isinstance(scene.relay, dict):
        yield "relay", json.dumps(redactor.value(scene.relay))


def tail(path: Path, redactor: Redactor) -> Iterator[str]:
    """Yield the last lines of a log. What is not a line of ours is left out, whatever it is."""
    try:
        lines = _last_lines(path)
    except OSError:
        return
    for line in lines:
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(told, dict) and {"at", "event"} <= told.keys():
            yield json.dumps(redactor.value(told))


def _last_lines(path: Path) -> list[bytes]:
    """Return the end of a plain file; of whatever else stands in its place nothing, for it has none."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return []
        with open(descriptor, "rb", closefd=False) as file:
            file.seek(max(0, status.st_size - LOG_BYTES_MAX))
            return file.read(LOG_BYTES_MAX).splitlines()[-LOG_LINES_MAX:]
    finally:
        os.close(descriptor)
