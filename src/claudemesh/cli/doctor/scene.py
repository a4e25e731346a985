"""What the checks look at: one home, its meshes, and what each server answers, asked once."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from claudemesh.cli.doctor.probe import Probe, probe
from claudemesh.cli.settings_files import Part, SettingsFile, settings_files
from claudemesh.daemon import identity
from claudemesh.daemon.client import Client
from claudemesh.edge.asking import Api, NobodyThere
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import MeshError
from claudemesh.runtime.home import Home, Surroundings, lock_holder
from claudemesh.storage.sqlite.inspect import Look, looking

Json = dict[str, Any]

ASK_S: Final = 3.0  # of a daemon or a relay, which are on this machine
LOOK_S: Final = 8.0

_SLUG: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class Scene:
    def __init__(
        self, around: Surroundings, environment: Mapping[str, str], clock: Clock, mesh: str | None
    ) -> None:
        self.home = Home.of(around)
        self.around = around
        self.environment = environment
        self.clock = clock
        self._mesh = mesh
        self._health: dict[str, Json | MeshError | OSError] = {}
        self._probes: dict[str, Probe] = {}

    @cached_property
    def meshes(self) -> list[str]:
        """The slugs of all state directories, or the one that is meant; also of those that are damaged."""
        if self._mesh is not None:
            return [self._mesh]
        found = (path.name for path in (self.home.root / "daemon").glob("*") if path.is_dir())
        return sorted(name for name in found if _SLUG.fullmatch(name))

    @cached_property
    def files(self) -> list[SettingsFile]:
        return settings_files(self.home, self.meshes, self.environment)

    def settings(self, part: Part, mesh: str | None = None) -> Any:  # noqa: ANN401 - of each part its own
        """Return the settings in force, or None if they cannot be read: their own check says so."""
        return next(file.loaded.settings for file in self.files if (file.part, file.mesh) == (part, mesh))

    def holder(self, slug: str) -> int | None:
        """Return the process that holds a daemon's lock; None if nobody does, or there is no telling."""
        try:
            return lock_holder(self.home.mesh_dir(slug) / "pid")
        except OSError:
            return None

    def client(self, slug: str) -> Client:
        return Client(self.home.mesh_dir(slug) / "sock", ASK_S, clock=self.clock)

    def health(self, slug: str) -> Json | None:
        """Return what a daemon says of itself, or None if it does not answer."""
        answer = self.answer(slug)
        return answer if isinstance(answer, dict) else None

    def answer(self, slug: str) -> Json | MeshError | OSError:
        """Return what a daemon says of itself, or why it does not."""
        if slug not in self._health:
            try:
                with self.client(slug) as client:
                    self._health[slug] = client.health()
            except (MeshError, OSError) as error:
                self._health[slug] = error
        return self._health[slug]

    def joined(self, slug: str) -> identity.Joined | None:
        """Return a membership, or None if it cannot be read: its own check says so."""
        try:
            return identity.load_membership(self.home.mesh_dir(slug))
        except (MeshError, OSError):
            return None

    @cached_property
    def relay(self) -> Json | MeshError | None:
        """What the relay says of itself, or why it does not; None if nobody listens."""
        try:
            answer = Api.at_socket(self.home.edge_dir / "sock").ask("GET", "/status", timeout_s=ASK_S)
            status: Json = answer.checked()
        except NobodyThere:
            return None
        except MeshError as error:
            return error
        return status

    def broker(self, url: str) -> Probe:
        if url not in self._probes:
            self._probes[url] = probe(url, self.clock)
        return self._probes[url]

    @contextmanager
    def looking(self, path: Path, within_s: float = LOOK_S) -> Iterator[Look]:
        with looking(path, self.clock, within_s) as connection:
            yield connection
