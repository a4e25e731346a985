"""Who this daemon is: its keys, its membership, its instance, and the host that all of these were made on.

Files of the state directory, each private (0600):

    keypair.json           the member's ed25519 seed and both public keys
    membership.json        what the broker said of us, and where it is; there only once it has said yes
    instance_id            minted once, kept over restarts: it tells a restart from a second copy
    host_fingerprint.json  of the host that made the directory

The host's fingerprint is sha256(machine-id || first stable MAC), so that a copied directory is noticed before two
daemons speak with one key. The machine id is /etc/machine-id, else /var/lib/dbus/machine-id. A stable MAC is the
burnt-in address of a physical device that is not on USB, the first by the device's name; for wireless ones that of
the radio, since the interface's own may be drawn anew for each network. Fallbacks: where one of the two is missing
(no such card, an image without a machine id) the other alone counts; where both are, as in most containers, there
is nothing to compare, the file says null, and the check is off until there is.
"""

import hashlib
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar

import msgspec

from claudemesh.kernel.errors import ConfigError, HostMismatch
from claudemesh.runtime.home import read_private, write_private
from claudemesh.runtime.keys import KeyPair, is_pubkey
from claudemesh.wire.invite import Membership

KEYS: Final = "keypair.json"
MEMBERSHIP: Final = "membership.json"
INSTANCE: Final = "instance_id"
HOST: Final = "host_fingerprint.json"

ClonePolicy = Literal["refuse", "warn", "allow"]
HostVerdict = Literal["same", "recorded", "unknown", "differs"]

_SEED_BYTES: Final = 32
_REJOIN: Final = "put back a copy of it, or join again with `claudemesh mesh join`"

S = TypeVar("S", bound=msgspec.Struct)


class Joined(Membership, frozen=True, kw_only=True):
    """A membership as it is kept: also where its broker is."""

    broker_url: str


@dataclass(frozen=True, slots=True)
class Identity:
    keys: KeyPair
    joined: Joined
    instance_id: str


def load(state_dir: Path, mint: Callable[[], str]) -> Identity:
    """Load who we are; an instance that has no id yet gets one."""
    return Identity(load_keys(state_dir), load_membership(state_dir), load_instance(state_dir, mint))


def store(state_dir: Path, keys: KeyPair, joined: Joined) -> None:
    """Keep an identity that the broker has said yes to. The membership comes last: with it we have joined."""
    write_keys(state_dir / KEYS, keys)
    record_host(state_dir)
    write_private(state_dir / MEMBERSHIP, _render(joined))


# --- keys ------------------------------------------------------------------------------------------


class _StoredKeys(msgspec.Struct, frozen=True):
    ed25519_seed: str
    pubkey: str
    x25519_pubkey: str


def write_keys(path: Path, keys: KeyPair) -> None:
    write_private(path, _render(_StoredKeys(keys.seed.hex(), keys.pubkey, keys.x25519_pubkey)))


def load_keys(state_dir: Path) -> KeyPair:
    return read_keys(state_dir / KEYS)


def read_keys(path: Path) -> KeyPair:
    """Read a key pair. A file whose halves do not belong together was edited or damaged, and signs nothing."""
    stored = _load(path, _StoredKeys)
    try:
        seed = bytes.fromhex(stored.ed25519_seed)
    except ValueError:
        seed = b""
    if len(seed) != _SEED_BYTES:
        raise ConfigError(f"{path} holds no key: {_REJOIN}")
    keys = KeyPair(seed)
    if (keys.pubkey, keys.x25519_pubkey) != (stored.pubkey, stored.x25519_pubkey):
        raise ConfigError(f"{path} names public keys that are not those of its private one: {_REJOIN}")
    return keys


# --- membership ------------------------------------------------------------------------------------


def load_membership(state_dir: Path) -> Joined:
    path = state_dir / MEMBERSHIP
    joined = _load(path, Joined)
    if joined.slug != state_dir.name:
        raise ConfigError(f"{path} is of the mesh {joined.slug!r}, not of {state_dir.name!r}: {_REJOIN}")
    if not is_pubkey(joined.broker_key):
        raise ConfigError(f"{path} names a broker key that is none: {_REJOIN}")
    return joined


def move_broker(state_dir: Path, broker_url: str) -> Joined:
    """Note that the same broker is now reached elsewhere."""
    joined = load_membership(state_dir)
    if joined.broker_url != broker_url:
        joined = msgspec.structs.replace(joined, broker_url=broker_url)
        write_private(state_dir / MEMBERSHIP, _render(joined))
    return joined


# --- the instance ----------------------------------------------------------------------------------


def load_instance(state_dir: Path, mint: Callable[[], str]) -> str:
    """Return this directory's instance id, minted the first time; of two that mint at once both get the first."""
    path = state_dir / INSTANCE
    try:
        kept = read_private(path)
    except FileNotFoundError:
        with suppress(FileExistsError):
            write_private(path, f"{mint()}\n".encode(), replace=False)
        kept = read_private(path)
    instance_id = kept.decode("ascii", "replace").strip()
    if not instance_id or not instance_id.isalnum():
        raise ConfigError(f"{path} holds no instance id: remove it, and a new one is made at the next start")
    return instance_id


# --- the host --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Host:
    machine_id: str = ""
    mac: str = ""

    @property
    def fingerprint(self) -> str | None:
        if not self.machine_id and not self.mac:
            return None
        return hashlib.sha256((self.machine_id + self.mac).encode()).hexdigest()

    @property
    def made_of(self) -> list[str]:
        return [name for name, value in (("machine-id", self.machine_id), ("mac", self.mac)) if value]


class _StoredHost(msgspec.Struct, frozen=True):
    fingerprint: str | None
    made_of: list[str] = []


def read_host(root: Path = Path("/")) -> Host:
    ids = (_text(root / path) for path in ("etc/machine-id", "var/lib/dbus/machine-id"))
    # systemd writes this word into an image that gets its id at the first boot
    machine_id = next((text for text in ids if text and text != "uninitialized"), "")
    devices = sorted((root / "sys/class/net").glob("*"), key=lambda device: device.name)
    macs = (_stable_mac(device) for device in devices)
    return Host(machine_id, next((mac for mac in macs if mac), ""))


def record_host(state_dir: Path, host: Host | None = None) -> None:
    """Note that this directory belongs to this host, from now on."""
    host = host or read_host()
    write_private(state_dir / HOST, _render(_StoredHost(host.fingerprint, host.made_of)))


def judge_host(state_dir: Path, policy: ClonePolicy, host: Host | None = None) -> HostVerdict:
    """Say whether this is still the host that the directory was made on.

    One that has recorded nothing yet records this one. On another host: HostMismatch, or with the policies `warn`
    and `allow` the verdict `differs`, which the caller logs and counts, or not.
    """
    host = host or read_host()
    verdict = compare_host(state_dir, host)
    if verdict == "unrecorded":
        record_host(state_dir, host)
        return "recorded"
    if verdict == "differs" and policy == "refuse":
        raise HostMismatch(
            f"{state_dir} was made on another host. If it moved here, and nothing runs there any more: `claudemesh "
            "daemon accept-host`. If it is a copy: `claudemesh daemon remint` gives it an identity of its own"
        )
    return verdict


def compare_host(state_dir: Path, host: Host) -> Literal["same", "unrecorded", "unknown", "differs"]:
    """Say whether this is the host that the directory was made on, and change nothing."""
    try:
        recorded = _read(state_dir / HOST, _StoredHost).fingerprint
    except FileNotFoundError:
        recorded = None
    if recorded is None:
        return "unknown" if host.fingerprint is None else "unrecorded"
    return "same" if recorded == host.fingerprint else "differs"


def _stable_mac(device: Path) -> str:
    try:
        where = (device / "device").resolve(strict=True)
    except OSError:
        return ""  # bridges, tunnels, the inside of a container
    if any(part.startswith("usb") for part in where.parts):
        return ""  # a dock or a dongle, which comes and goes
    radio = _text(device / "phy80211/macaddress")
    mac = radio or (_text(device / "address") if _text(device / "addr_assign_type") == "0" else "")
    return "" if mac == "00:00:00:00:00:00" else mac.lower()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip() if stat.S_ISREG(path.stat().st_mode) else ""
    except (OSError, UnicodeDecodeError):
        return ""


# --- files -----------------------------------------------------------------------------------------


def _render(value: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value)) + b"\n"


def _load(path: Path, wanted: type[S]) -> S:
    try:
        return _read(path, wanted)
    except FileNotFoundError as error:
        raise ConfigError(f"{path} is not there: {_REJOIN}") from error


def _read(path: Path, wanted: type[S]) -> S:
    try:
        return msgspec.json.decode(read_private(path), type=wanted)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} is damaged ({error}): {_REJOIN}") from error
