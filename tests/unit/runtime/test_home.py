"""Private files stay private, one process holds a lock, and the surroundings say what they are."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from claudemesh.kernel.errors import AlreadyRunning, ConfigError, InvalidRequest
from claudemesh.runtime.home import (
    Home,
    InstanceLock,
    Surroundings,
    Timings,
    choose_socket,
    ensure_private_dir,
    find_socket,
    lock_holder,
    read_private,
    read_surroundings,
    read_timings,
    write_private,
)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


# --- private files ---------------------------------------------------------------------------------------


@pytest.mark.req("D16")
def test_a_private_file_is_its_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_private(tmp_path / "key", b"secret")
        Home(tmp_path / "home").ensure_dir(tmp_path / "home" / "daemon" / "m")
    finally:
        os.umask(before)
    assert mode(tmp_path / "key") == 0o600
    assert [mode(tmp_path / name) for name in ("home", "home/daemon", "home/daemon/m")] == [0o700] * 3
    assert read_private(tmp_path / "key") == b"secret"


def test_a_file_is_replaced_in_one_step_and_nothing_is_left_behind(tmp_path: Path) -> None:
    write_private(tmp_path / "key", b"old")
    kept = (tmp_path / "key").open("rb")
    write_private(tmp_path / "key", b"new")
    with kept:
        assert kept.read() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    write_private(tmp_path / "key", b"old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        write_private(tmp_path / "key", b"new")
    assert (tmp_path / "key").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_without_replacing_the_first_writer_wins(tmp_path: Path) -> None:
    write_private(tmp_path / "key", b"first", replace=False)
    with pytest.raises(FileExistsError):
        write_private(tmp_path / "key", b"second", replace=False)
    assert read_private(tmp_path / "key") == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_a_link_in_the_way_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"untouched")
    (tmp_path / "key").symlink_to(tmp_path / "elsewhere")
    write_private(tmp_path / "key", b"secret")
    assert (tmp_path / "elsewhere").read_bytes() == b"untouched"
    assert not (tmp_path / "key").is_symlink()


def as_link(path: Path) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to(path.with_name("real"))


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def as_directory(path: Path) -> None:
    path.unlink()
    path.mkdir(0o700)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda path: path.chmod(0o644), "chmod 600"),
        (lambda path: path.chmod(0o620), "chmod 600"),
        (as_link, "symbolic link"),
        (as_pipe, "not a plain file"),
        (as_directory, "not a plain file"),
        (lambda path: os.truncate(path, 2 << 20), "larger"),
    ],
    ids=["readable", "writable", "link", "pipe", "directory", "huge"],
)
def test_a_file_that_others_could_read_or_swap_is_refused_with_what_to_do(
    tmp_path: Path, spoil: Callable[[Path], None], says: str
) -> None:
    path = tmp_path / "key"
    write_private(path, b"secret")
    spoil(path)
    with pytest.raises(ConfigError, match=says) as caught:
        read_private(path)
    assert str(path) in caught.value.detail


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_private(tmp_path / "key", b"secret")
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.raises(ConfigError, match="another user"):
        read_private(tmp_path / "key")
    with pytest.raises(ConfigError, match="another user"):
        ensure_private_dir(tmp_path)


def test_a_file_that_is_not_there_is_just_that(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_private(tmp_path / "key")


# --- the home --------------------------------------------------------------------------------------------


def test_a_home_is_closed_to_others_unless_more_than_ours_is_in_it(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.root.mkdir(mode=0o755)
    home.ensure()
    assert mode(home.root) == 0o700
    home.root.chmod(0o755)
    (home.root / "thesis.tex").write_text("")
    home.ensure()
    assert mode(home.root) == 0o755  # somebody's own directory: all of ours inside is private


def test_a_home_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match="chmod 700"):
        Home(tmp_path).ensure()


def test_a_directory_inside_is_for_its_owner_only(tmp_path: Path) -> None:
    home = Home(tmp_path)
    (tmp_path / "daemon").mkdir()
    (tmp_path / "daemon").chmod(0o755)
    with pytest.raises(ConfigError, match="chmod 700"):
        home.ensure_dir(home.mesh_dir("demo"))


def test_a_link_or_a_file_in_place_of_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").write_text("")
    for name in ("link", "file"):
        with pytest.raises(ConfigError, match="not a directory"):
            ensure_private_dir(tmp_path / name)


@pytest.mark.parametrize("slug", ["..", "a/b", "", ".hidden", "UP", "a" * 64, "a\n", "-a", "ä"])
def test_a_slug_never_leads_elsewhere(tmp_path: Path, slug: str) -> None:
    home = Home(tmp_path)
    with pytest.raises(InvalidRequest):
        home.mesh_dir(slug)
    with pytest.raises(InvalidRequest):
        home.pending_file(slug)


def test_joined_are_the_meshes_with_a_membership(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert home.meshes() == []
    for slug in ("b", "a", "unfinished"):
        home.ensure_dir(home.mesh_dir(slug))
    for slug in ("b", "a"):
        write_private(home.mesh_dir(slug) / "membership.json", b"{}")
    assert home.meshes() == ["a", "b"]


# --- the socket ------------------------------------------------------------------------------------------


def test_a_socket_is_beside_its_state_unless_the_path_is_too_long(tmp_path: Path) -> None:
    assert choose_socket(Path("/a"), None) == Path("/a/sock")
    deep = Path("/" + "d" * 120)
    short = choose_socket(deep, tmp_path)
    assert short.parent == tmp_path / "claudemesh"
    assert short == choose_socket(deep, tmp_path)
    assert short.name != choose_socket(deep / "other", tmp_path).name
    assert len(os.fsencode(choose_socket(deep, None))) < 108
    with pytest.raises(ConfigError, match="too long"):
        choose_socket(deep, deep)


def test_a_file_that_names_no_socket_is_explained(tmp_path: Path) -> None:
    assert find_socket(tmp_path / "sock") is None
    write_private(tmp_path / "sock", b"nonsense\n")
    with pytest.raises(ConfigError, match="neither a socket"):
        find_socket(tmp_path / "sock")


# --- the lock --------------------------------------------------------------------------------------------

HOLD = """
import sys
from pathlib import Path
from claudemesh.runtime.home import InstanceLock
lock = InstanceLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


def hold(path: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def test_a_second_process_is_told_who_runs_already(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    with hold(path) as child:
        with pytest.raises(AlreadyRunning) as caught:
            InstanceLock(path).acquire()
        assert caught.value.extras["pid"] == child.pid
        assert lock_holder(path) == child.pid
        child.kill()
    assert lock_holder(path) is None  # the lock ended with its process, although the file still names it
    assert path.read_text() == f"{child.pid}\n"
    with InstanceLock(path):
        assert lock_holder(path) == os.getpid()
    assert lock_holder(path) is None


def test_who_looks_for_a_holder_is_not_taken_for_one(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    path.touch()
    with path.open("r+") as looker:
        fcntl.flock(looker, fcntl.LOCK_SH)  # as a look does that has not ended
        assert lock_holder(path) is None


def test_a_number_in_the_file_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "pid").write_text(f"{os.getpid()}\n")
    assert lock_holder(tmp_path / "pid") is None
    with InstanceLock(tmp_path / "pid"):
        pass


def test_a_lock_is_not_taken_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("untouched")
    (tmp_path / "pid").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="symbolic link"):
        InstanceLock(tmp_path / "pid").acquire()
    assert (tmp_path / "elsewhere").read_text() == "untouched"


def test_a_lock_can_be_released_twice_and_nobody_holds_what_was_never_taken(tmp_path: Path) -> None:
    lock = InstanceLock(tmp_path / "pid")
    lock.release()
    lock.acquire()
    lock.release()
    lock.release()
    assert lock_holder(tmp_path / "pid") is None
    assert lock_holder(tmp_path / "other") is None


# --- surroundings ----------------------------------------------------------------------------------------


def look(root: Path, **environment: str) -> Surroundings:
    return read_surroundings({"HOME": "/h", **environment}, str(root))


@pytest.mark.req("D16")
@pytest.mark.parametrize(
    ("variable", "value", "is_ci"),
    [
        ("CI", "true", True),
        ("CI", "1", True),
        ("CI", "false", False),
        ("CI", "0", False),
        ("CI", "", False),
        ("GITHUB_ACTIONS", "true", True),
        ("GITLAB_CI", "yes", True),
        ("BUILDKITE", "true", True),
        ("CIRCLECI", "true", True),
        ("JENKINS_URL", "x", True),
    ],
)
def test_in_ci_keys_are_ephemeral_and_only_the_socket_is_open(
    tmp_path: Path, variable: str, value: str, *, is_ci: bool
) -> None:
    around = look(tmp_path, **{variable: value})
    assert (around.ci == variable, around.ephemeral, around.tcp, around.hooks) == (
        is_ci,
        is_ci,
        not is_ci,
        not is_ci,
    )


@pytest.mark.req("D16")
@pytest.mark.parametrize("where", ["docker", "podman", "kubernetes", "runpod"])
def test_in_a_container_keys_are_kept_and_only_the_socket_is_open(tmp_path: Path, where: str) -> None:
    environment = {}
    if where == "docker":
        (tmp_path / ".dockerenv").write_text("")
    elif where == "podman":
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / ".containerenv").write_text("")
    else:
        environment = {"kubernetes": {"KUBERNETES_SERVICE_HOST": "x"}, "runpod": {"RUNPOD_POD_ID": "x"}}[where]
    around = look(tmp_path, **environment)
    assert (around.container, around.ephemeral, around.tcp, around.hooks) == (where, False, False, True)


@pytest.mark.req("D16")
def test_elsewhere_keys_are_kept_and_tcp_is_open(tmp_path: Path) -> None:
    around = look(tmp_path)
    assert (around.ci, around.container, around.ephemeral, around.tcp, around.hooks) == (
        None,
        None,
        False,
        True,
        True,
    )


def test_the_environment_names_home_mesh_and_runtime_directory(tmp_path: Path) -> None:
    around = look(
        tmp_path, CLAUDEMESH_HOME="/x/../y", CLAUDEMESH_MESH="demo", XDG_RUNTIME_DIR="/run/u", NO_COLOR="1"
    )
    assert (around.home, around.mesh, around.runtime_dir, around.no_color) == (
        Path("/y"),
        "demo",
        Path("/run/u"),
        True,
    )
    around = look(tmp_path, CLAUDEMESH_HOME="", CLAUDEMESH_MESH="", XDG_RUNTIME_DIR="relative")
    assert (around.home.name, around.mesh, around.runtime_dir) == (".claudemesh", None, None)
    assert look(tmp_path, CLAUDEMESH_HOME="here").home == Path.cwd() / "here"


def test_timings_are_read_by_their_names_and_a_wrong_one_is_refused() -> None:
    assert read_timings(environment={}) == Timings(90_000, 30_000, 75_000)
    read = read_timings({"LEASE_TTL_MS": "2000", "PING_INTERVAL_MS": "500"})
    assert read == Timings(2000, 500, 75_000)
    for wrong in ("soon", "0", "-1", "1.5", "49", "604800001", "9" * 5_000, "0" * 15 + "9" * 9, "²"):
        with pytest.raises(ConfigError, match="PING_INTERVAL_MS"):
            read_timings(environment={"PING_INTERVAL_MS": wrong})
    with pytest.raises(ConfigError, match="from 1000 to 604800000"):
        read_timings(environment={"LEASE_TTL_MS": "90"})  # meant in seconds


@pytest.mark.req("D16")
def test_nobody_is_told_to_close_a_directory_that_is_for_all(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(ConfigError, match="name a directory of your own"):
        ensure_private_dir(shared)
    shared.chmod(0o777)
    with pytest.raises(ConfigError, match="chmod 700"):
        ensure_private_dir(shared)
