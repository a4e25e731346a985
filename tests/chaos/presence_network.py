"""Two hosts with a network between them that may lose every packet, in both directions, and tell nobody.

Each is a network namespace, inside a user namespace, so that nobody has to be root. Packets are lost by sending
them to a hardware address that is nobody's: no carrier drops, no route is missing, and no error comes back.
"""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.certificates import Authority
from tests.chaos.presence import SLUG, WITHIN_S, Times, Town, program

NOBODY = "02:00:00:00:00:99"


@dataclass(frozen=True)
class Host:
    pid: int
    device: str
    address: str
    hardware: str

    @property
    def within(self) -> tuple[str, ...]:
        """The beginning of a command that runs on this host."""
        return ("nsenter", f"--target={self.pid}", "--user", "--net", "--preserve-credentials", "--")

    def run(self, *words: str) -> None:
        subprocess.run([*self.within, *words], check=True, capture_output=True)

    def knows(self, other: "Host", hardware: str | None = None) -> None:
        words = f"neigh replace {other.address} lladdr {hardware or other.hardware} dev {self.device} nud permanent"
        self.run("ip", *words.split())


@dataclass(frozen=True)
class Network:
    near: Host  # where the broker and those who watch are
    far: Host

    def lose_everything(self) -> None:
        self.near.knows(self.far, NOBODY)
        self.far.knows(self.near, NOBODY)

    def heal(self) -> None:
        self.near.knows(self.far)
        self.far.knows(self.near)


@asynccontextmanager
async def network() -> AsyncIterator[Network]:
    async with AsyncExitStack() as stack:
        near_pid = await stack.enter_async_context(_held("unshare", "--user", "--map-root-user", "--net"))
        near = Host(near_pid, "near0", "10.99.0.1", "02:00:00:00:00:01")
        far_pid = await stack.enter_async_context(_held(*near.within, "unshare", "--net"))
        far = Host(far_pid, "far0", "10.99.0.2", "02:00:00:00:00:02")
        ends = f"{near.device} address {near.hardware} type veth peer {far.device} address {far.hardware}"
        near.run("ip", "link", "add", *ends.split(), "netns", str(far.pid))
        for host in (near, far):
            host.run("ip", "address", "add", f"{host.address}/24", "dev", host.device)
            host.run("ip", "link", "set", "lo", "up")
            host.run("ip", "link", "set", host.device, "up")
        made = Network(near, far)
        made.heal()
        yield made


@asynccontextmanager
async def _held(*words: str) -> AsyncIterator[int]:
    """Keep a namespace: its process waits for the end of its input."""
    process = await asyncio.create_subprocess_exec(
        *words, "sh", "-c", "echo here; exec cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(WITHIN_S):
            assert await process.stdout.readline() == b"here\n"
        yield process.pid
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def town_on(hosts: Network, folder: Path, times: Times, owner: str, *names: str) -> AsyncIterator[Town]:
    """Have a broker on the near host, over TLS since it is not on this machine alone, and these members."""
    authority = Authority(folder / "authority")
    pair = authority.sign(f"IP:{hosts.near.address}")
    token = folder / "admin-token"  # the broker makes it
    trust = {"SSL_CERT_FILE": str(authority.certificate)}
    words = ["broker", "serve", "--json", "--listen", f"{hosts.near.address}:0", "--admin-token-file", str(token)]
    words += ["--tls-cert", str(pair.chain), "--tls-key", str(pair.key)]
    home = {"CLAUDEMESH_HOME": str(folder / "broker")}
    async with (
        program(folder / "broker.log", words, times.environment | home, hosts.near.within) as broker,
        AsyncExitStack() as stack,
    ):
        made = Town(folder, times, broker, stack, hosts.near.within, trust)
        about = ("--broker", made.url, "--name", owner, "--admin-token-file", str(token))
        await made.run(owner, "mesh", "create", SLUG, *about)
        code = (await made.run(owner, "mesh", "invite", SLUG, "--uses", str(len(names))))["code"]
        await asyncio.gather(*(made.run(name, "mesh", "join", code, "--name", name) for name in names))
        yield made
