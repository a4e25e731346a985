"""`statehub serve` and `statehub idempotency`: the hub, and the keys that its callers used.

Its settings are `hub.toml` in the home, or variables that begin with CLAUDEMESH_HUB__; the command line wins.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from claudemesh.cli.command import Command, Group, Session, parse_listen
from claudemesh.cli.render import escape

if TYPE_CHECKING:
    from claudemesh.hub.settings import HubSettings

FILE: Final = "hub.toml"
SQLITE: Final = "sqlite:///"
POSTGRES: Final = ("postgresql://", "postgres://")
OURS: Final = "CLAUDEMESH_HUB__"  # CLAUDEMESH_HUB__LISTEN is `listen`: a broker on the same machine has one, too
PAGE_MAX: Final = 1_000


def parse_store(text: str) -> str:
    is_file = text.startswith(SQLITE) and text != SQLITE
    if not is_file and not text.startswith(POSTGRES):  # not quoted: it may hold a password
        raise click.BadParameter(f"is none of {SQLITE}PATH, {POSTGRES[0]}HOST/NAME")
    return text


STORE: Final = click.option(
    "--store",
    type=parse_store,
    metavar="URL",
    help=f"Its store: {SQLITE}PATH or {POSTGRES[0]}HOST/NAME. [default: hub.db in the home]",
)


@click.command(cls=Command)
@click.option(
    "--listen", type=parse_listen, metavar="HOST:PORT", help="Where to listen. [default: 127.0.0.1:18000]"
)
@STORE
@click.option("--token-file", metavar="FILE", help="Whose token every request must carry; needed beyond loopback.")
@click.pass_obj
def serve(session: Session, /, **said: Any) -> int:  # noqa: ANN401 - as the options name them
    """Serve the hub until stopped, logging to standard error."""
    from claudemesh.hub.app import run  # noqa: PLC0415 - all of the hub

    def ready(url: str) -> None:
        session.out.document({"url": url}, [f"listening at {escape(url)}"])

    return run(build_settings(session, said), ready)


@click.group(cls=Group)
def idempotency() -> None:
    """Idempotency: list."""


@idempotency.command("list")
@STORE
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="SEQ", help="Begin after this one.")
@click.option(
    "--limit",
    type=click.IntRange(1, PAGE_MAX),
    default=100,
    show_default=True,
    metavar="N",
    help="At most so many.",
)
@click.pass_obj
def list_keys(session: Session, store: str | None, after: int, limit: int) -> None:
    """List the keys that callers used and what became of them, without bodies; a hub may be running."""
    import asyncio  # noqa: PLC0415 - not for `--help`

    from claudemesh.hub.app import list_keys as run  # noqa: PLC0415 - as above

    found = asyncio.run(run(build_settings(session, {"store": store}), after, limit))
    heads = ("seq", "state", "status", "method", "path", "key", "host", "agent", "last seen")
    names = ("seq", "state", "status", "method", "path", "key", "source_host", "source_agent", "last_seen")
    rows = [[key[name] or None for name in names] for key in found["keys"]]
    session.out.document(found, session.out.table(heads, rows))


def build_settings(session: Session, said: dict[str, str | None]) -> "HubSettings":
    """Put together what the file, the environment and the command line say; the command line wins."""
    from msgspec.structs import replace  # noqa: PLC0415 - not for `--help`

    from claudemesh.runtime.settings import load  # noqa: PLC0415 - as above

    session.home.ensure()
    settings = load(file_settings(session.home.hub_db), session.home.root / FILE, prefix=OURS)
    # What a file names lies beside it, wherever the command is given.
    path = settings.token_file
    beside = {} if path is None else {"token_file": str(session.home.root / path)}
    given = {name: value for name, value in said.items() if value is not None}
    return replace(settings, **{**beside, **given})


def file_settings(hub_db: Path) -> "type[HubSettings]":
    """Return the settings with a store: the home's own, which the file need not name."""
    from claudemesh.hub.settings import HubSettings, Store  # noqa: PLC0415 - as above

    class FileSettings(HubSettings, frozen=True, kw_only=True):
        store: Store = f"sqlite:///{hub_db}"

    return FileSettings
