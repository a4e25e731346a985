"""A token is in a file that only its owner can read, or there is none."""

import os
import stat
from pathlib import Path

import pytest

from claudemesh.asgi.events import TokenRotated
from claudemesh.asgi.tokens import TokenFile, read_token
from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime.observe import Observer
from claudemesh.runtime.tokens import fresh_token
from tests.unit.asgi.calling import HandClock, recorded


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "local_token"


def open_tokens(path: Path) -> TokenFile:
    return TokenFile(path, HandClock(), Observer())


@pytest.mark.req("D15")
def test_a_first_start_makes_a_token_that_only_we_can_read_and_the_next_start_keeps_it(path: Path) -> None:
    before = os.umask(0)
    try:
        tokens = open_tokens(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    token = read_token(path).encode()
    assert tokens.identify(token) == "local"
    assert open_tokens(path).identify(token) == "local"
    assert tokens.identify(b"") is None


def test_of_two_that_start_at_once_the_slower_takes_the_token_of_the_faster(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken() -> str:
        path.write_text("theirs-" * 6)
        path.chmod(0o600)
        return fresh_token()

    monkeypatch.setattr("claudemesh.asgi.tokens.fresh_token", overtaken)
    assert open_tokens(path).identify(b"theirs-" * 6) == "local"
    assert read_token(path) == "theirs-" * 6


def test_two_tokens_are_never_the_same_and_need_no_quoting() -> None:
    tokens = {fresh_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(len(token) == 43 and token.replace("-", "").replace("_", "").isalnum() for token in tokens)


@pytest.mark.req("D15")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o700 | 0o010])
def test_a_token_that_others_could_read_is_refused(path: Path, mode: int) -> None:
    open_tokens(path)
    path.chmod(mode)
    with pytest.raises(ConfigError):
        open_tokens(path)


@pytest.mark.req("D15")
def test_a_token_behind_a_link_is_refused(path: Path) -> None:
    open_tokens(path)
    link = path.with_name("link")
    link.symlink_to(path)
    with pytest.raises(ConfigError):
        open_tokens(link)
    nowhere = path.with_name("nowhere")
    nowhere.symlink_to(path.with_name("made"))
    with pytest.raises(ConfigError):
        open_tokens(nowhere)
    assert not path.with_name("made").exists()


@pytest.mark.req("D15")
def test_a_token_of_another_user_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_tokens(path)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(ConfigError):
        open_tokens(path)


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 20 + b" " + b"y" * 20, b"\xff" * 40])
def test_a_file_that_holds_no_token_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError):
        open_tokens(path)


@pytest.mark.req("D15")
def test_a_rotation_is_in_the_file_at_once_and_told_without_the_token(path: Path) -> None:
    observer = Observer()
    events = recorded(observer)
    tokens = TokenFile(path, HandClock(), observer)
    first = read_token(path)
    second = tokens.rotate()
    assert read_token(path) == second != first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert events == [TokenRotated()]
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert second not in repr(tokens)


@pytest.mark.req("D15")
def test_only_the_last_two_tokens_are_in_force_and_the_older_for_a_minute(path: Path) -> None:
    clock = HandClock()
    tokens = TokenFile(path, clock, Observer())
    given = [read_token(path).encode(), *(tokens.rotate().encode() for _ in range(2))]
    assert [tokens.identify(token) for token in given] == [None, "local-previous", "local"]
    clock.now_ms += 59_999
    assert tokens.identify(given[1]) == "local-previous"
    clock.now_ms += 1
    assert [tokens.identify(token) for token in given] == [None, None, "local"]
