"""An identity is loaded whole or refused with the file and what to do; a copied directory is noticed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from claudemesh.daemon import identity
from claudemesh.daemon.identity import Host, Joined
from claudemesh.kernel.errors import ConfigError, HostMismatch
from claudemesh.runtime.home import read_private, write_private
from claudemesh.runtime.keys import KeyPair, verify

HERE = Host("0123456789abcdef0123456789abcdef", "02:00:00:00:00:01")
THERE = Host("fedcba9876543210fedcba9876543210", "02:00:00:00:00:01")


def make_joined(**changed: Any) -> Joined:  # noqa: ANN401 - of whatever type the field has
    given = {
        "mesh_id": "M1",
        "slug": "demo",
        "member_id": "P1",
        "name": "ada",
        "role": "owner",
        "broker_key": "ab" * 32,
        "broker_url": "http://127.0.0.1:7450",
    }
    return Joined(**(given | changed))


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    path = tmp_path / "demo"
    path.mkdir(0o700)
    return path


@pytest.fixture
def keys(state_dir: Path) -> KeyPair:
    keys = KeyPair.generate()
    identity.store(state_dir, keys, make_joined())
    return keys


# --- keys and membership ---------------------------------------------------------------------------------


@pytest.mark.req("D16")
def test_what_was_stored_is_loaded_and_signs_as_before(state_dir: Path, keys: KeyPair) -> None:
    loaded = identity.load(state_dir, lambda: "01J0000000000000000000000")
    assert loaded.joined == make_joined()
    assert (loaded.keys.pubkey, loaded.keys.x25519_pubkey) == (keys.pubkey, keys.x25519_pubkey)
    assert verify(keys.pubkey, b"x", loaded.keys.sign(b"x"))
    for name in ("keypair.json", "membership.json", "instance_id", "host_fingerprint.json"):
        assert (state_dir / name).stat().st_mode & 0o777 == 0o600


def test_the_key_file_names_seed_and_both_public_keys(state_dir: Path, keys: KeyPair) -> None:
    stored = json.loads(read_private(state_dir / "keypair.json"))
    assert stored == {"ed25519_seed": keys.seed.hex(), "pubkey": keys.pubkey, "x25519_pubkey": keys.x25519_pubkey}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda stored: stored | {"pubkey": KeyPair.generate().pubkey},
        lambda stored: stored | {"x25519_pubkey": KeyPair.generate().x25519_pubkey},
        lambda stored: stored | {"ed25519_seed": "ab"},
        lambda stored: stored | {"ed25519_seed": "zz" * 32},
        lambda stored: {"pubkey": stored["pubkey"]},
    ],
)
@pytest.mark.usefixtures("keys")
def test_keys_that_do_not_belong_together_sign_nothing(
    state_dir: Path, spoil: Callable[[dict[str, str]], dict[str, str]]
) -> None:
    path = state_dir / "keypair.json"
    write_private(path, json.dumps(spoil(json.loads(read_private(path)))).encode())
    with pytest.raises(ConfigError, match="mesh join") as caught:
        identity.load_keys(state_dir)
    assert str(path) in caught.value.detail


@pytest.mark.parametrize("name", ["keypair.json", "membership.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", None])
@pytest.mark.usefixtures("keys")
def test_a_damaged_or_missing_file_is_named_with_what_to_do(
    state_dir: Path, name: str, content: bytes | None
) -> None:
    path = state_dir / name
    if content is None:
        path.unlink()
    else:
        write_private(path, content)
    with pytest.raises(ConfigError, match="mesh join") as caught:
        identity.load(state_dir, lambda: "I1")
    assert str(path) in caught.value.detail


@pytest.mark.parametrize("changed", [{"slug": "other"}, {"broker_key": "no key"}])
@pytest.mark.usefixtures("keys")
def test_a_membership_of_another_mesh_or_without_a_broker_key_is_refused(
    state_dir: Path, changed: dict[str, str]
) -> None:
    write_private(state_dir / "membership.json", msgspec.json.encode(make_joined(**changed)))
    with pytest.raises(ConfigError):
        identity.load_membership(state_dir)


def test_a_directory_is_joined_only_once_all_is_there(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    def note(path: Path, data: bytes, **how: bool) -> None:
        written.append(path.name)
        write_private(path, data, **how)

    monkeypatch.setattr(identity, "write_private", note)
    identity.store(state_dir, KeyPair.generate(), make_joined())
    assert written[-1] == "membership.json"
    assert set(written) == {"keypair.json", "host_fingerprint.json", "membership.json"}


@pytest.mark.usefixtures("keys")
def test_a_broker_may_move(state_dir: Path) -> None:
    assert identity.move_broker(state_dir, "http://127.0.0.1:9").broker_url == "http://127.0.0.1:9"
    assert identity.load_membership(state_dir) == make_joined(broker_url="http://127.0.0.1:9")


# --- the instance ----------------------------------------------------------------------------------------


def test_an_instance_id_is_minted_once(state_dir: Path) -> None:
    minted = iter(["FIRST", "SECOND"])
    assert identity.load_instance(state_dir, lambda: next(minted)) == "FIRST"
    assert identity.load_instance(state_dir, lambda: next(minted)) == "FIRST"


def test_of_two_that_mint_at_once_both_get_the_first(state_dir: Path) -> None:
    def overtaken() -> str:
        write_private(state_dir / "instance_id", b"FASTER\n")
        return "SLOWER"

    assert identity.load_instance(state_dir, overtaken) == "FASTER"


@pytest.mark.parametrize("content", [b"", b"\n", b"a b", b"\xff"])
def test_an_instance_id_that_is_none_is_named(state_dir: Path, content: bytes) -> None:
    write_private(state_dir / "instance_id", content)
    with pytest.raises(ConfigError, match="remove it"):
        identity.load_instance(state_dir, lambda: "I1")


# --- the host --------------------------------------------------------------------------------------------


@pytest.mark.req("D16")
def test_a_copied_directory_is_refused_and_the_ways_out_are_named(state_dir: Path) -> None:
    identity.record_host(state_dir, HERE)
    assert identity.judge_host(state_dir, "refuse", HERE) == "same"
    with pytest.raises(HostMismatch) as caught:
        identity.judge_host(state_dir, "refuse", THERE)
    assert "accept-host" in caught.value.detail
    assert "remint" in caught.value.detail
    assert identity.judge_host(state_dir, "warn", THERE) == "differs"
    assert identity.judge_host(state_dir, "allow", THERE) == "differs"
    identity.record_host(state_dir, THERE)
    assert identity.judge_host(state_dir, "refuse", THERE) == "same"


@pytest.mark.req("D16")
def test_a_fingerprint_is_the_hash_of_machine_id_and_mac() -> None:
    assert Host("ab", "02:00").fingerprint == "f1b9405d23e659e40d933a5e9894b2964d6a58918ebbdba2759b2823e84526df"
    assert Host("ab", "02:00").fingerprint != Host("ab", "02:01").fingerprint
    assert Host("", "").fingerprint is None


def test_a_directory_without_a_record_takes_this_host_and_one_that_cannot_be_told_is_let_be(
    state_dir: Path,
) -> None:
    assert identity.judge_host(state_dir, "refuse", Host()) == "unknown"
    assert not (state_dir / "host_fingerprint.json").exists()
    identity.record_host(state_dir, Host())
    assert identity.judge_host(state_dir, "refuse", Host()) == "unknown"
    assert identity.judge_host(state_dir, "refuse", HERE) == "recorded"
    assert identity.judge_host(state_dir, "refuse", HERE) == "same"
    with pytest.raises(HostMismatch):
        identity.judge_host(state_dir, "refuse", Host())


def device(root: Path, name: str, mac: str, *, where: str | None = "pci0/0000:00:01", kind: str = "0") -> Path:
    path = root / "sys/class/net" / name
    path.mkdir(parents=True)
    (path / "address").write_text(f"{mac}\n")
    (path / "addr_assign_type").write_text(f"{kind}\n")
    if where is not None:
        target = root / "sys/devices" / where
        target.mkdir(parents=True, exist_ok=True)
        (path / "device").symlink_to(target)
    return path


def machine(root: Path, text: str, where: str = "etc/machine-id") -> None:
    (root / where).parent.mkdir(parents=True, exist_ok=True)
    (root / where).write_text(text)


def test_the_first_stable_mac_is_that_of_a_physical_device_which_is_not_on_usb(tmp_path: Path) -> None:
    machine(tmp_path, "abc\n")
    device(tmp_path, "br0", "02:00:00:00:00:01", where=None)
    device(tmp_path, "dock0", "02:00:00:00:00:02", where="pci0/usb1/1-1")
    device(tmp_path, "eth0", "02:00:00:00:00:03", kind="3")
    device(tmp_path, "eth1", "02:00:00:00:00:0A")
    device(tmp_path, "eth2", "02:00:00:00:00:04")
    assert identity.read_host(tmp_path) == Host("abc", "02:00:00:00:00:0a")


def test_a_wireless_device_counts_by_its_radio(tmp_path: Path) -> None:
    path = device(tmp_path, "wlan0", "06:11:11:11:11:11", kind="3")
    (path / "phy80211").mkdir()
    (path / "phy80211" / "macaddress").write_text("02:00:00:00:00:05\n")
    assert identity.read_host(tmp_path) == Host("", "02:00:00:00:00:05")


@pytest.mark.parametrize("first", ["", "uninitialized\n", None])
def test_where_systemd_has_no_machine_id_dbus_may_have(tmp_path: Path, first: str | None) -> None:
    if first is not None:
        machine(tmp_path, first)
    machine(tmp_path, "def\n", "var/lib/dbus/machine-id")
    assert identity.read_host(tmp_path) == Host("def", "")


def test_in_a_bare_container_there_is_nothing_to_compare(tmp_path: Path) -> None:
    device(tmp_path, "eth0", "02:42:ac:11:00:02", where=None)
    device(tmp_path, "lo", "00:00:00:00:00:00")
    assert identity.read_host(tmp_path) == Host()
    assert identity.read_host(tmp_path).made_of == []
