"""`broker`: the server that meshes meet at, and the care for its store.

Its settings are `broker.toml` in the home; what the command line says wins.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from claudemesh.cli.command import Group, Session, parse_listen
from claudemesh.cli.render import escape
from claudemesh.runtime.home import read_private

if TYPE_CHECKING:
    from claudemesh.broker.settings import BrokerSettings

FILE: Final = "broker.toml"
SQLITE: Final = "sqlite:///"
MEMORY: Final = "memory:"
POSTGRES: Final = ("postgresql://", "postgres://")
REDIS: Final = ("redis://", "rediss://", "unix://")
FILES: Final = ("admin_token_file", "tls_cert", "tls_key")


def parse_store(text: str) -> str:
    is_file = text.startswith(SQLITE) and text != SQLITE
    if not is_file and text != MEMORY and not text.startswith(POSTGRES):  # not quoted, as below
        raise click.BadParameter(f"is none of {SQLITE}PATH, {POSTGRES[0]}HOST/NAME")
    return text


def parse_limiter(text: str) -> str:
    if text != MEMORY and not text.startswith(REDIS):  # not quoted: it may hold a password
        raise click.BadParameter(f"begins with none of {MEMORY}, {', '.join(REDIS)}")
    return text


STORE: Final = click.option(
    "--store",
    type=parse_store,
    metavar="URL",
    help=f"Its store: {SQLITE}PATH or {POSTGRES[0]}HOST/NAME. [default: broker.db in the home]",
)


@click.group(cls=Group)
def broker() -> None:
    """Broker: serve, check, sweep, restored, rotate-resume-key."""


@broker.command()
@click.option("--listen", type=parse_listen, metavar="HOST:PORT", help="Where to listen. [default: 127.0.0.1:7450]")
@STORE
@click.option(
    "--limiter",
    type=parse_limiter,
    metavar="URL",
    help=f"Where budgets are counted: {MEMORY} or redis://HOST. [default: {MEMORY}]",
)
@click.option("--admin-token-file", metavar="FILE", help="Whose token may make meshes; needed beyond this machine.")
@click.option("--tls-cert", metavar="FILE", help="The certificate to show, PEM; read again on SIGHUP.")
@click.option("--tls-key", metavar="FILE", help="Its key, in a private file.")
@click.pass_obj
def serve(session: Session, /, **said: Any) -> int:  # noqa: ANN401 - as the options name them
    """Serve until stopped, logging to standard error."""
    from claudemesh.broker.app import run  # noqa: PLC0415 - all of the broker

    def ready(url: str) -> None:
        session.out.document({"url": url}, [f"listening at {escape(url)}"])

    return run(build_settings(session, said), ready)


@broker.command()
@STORE
@click.pass_obj
def check(session: Session, store: str | None) -> int:
    """Look for what one commit should have kept together; a broker may be running."""
    import asyncio  # noqa: PLC0415 - as below

    from claudemesh.broker.app import check as run  # noqa: PLC0415 - all of the broker

    settings = build_settings(session, {"store": store})
    with session.waiting("checking the store"):
        found = asyncio.run(run(settings))
    rows = [(item["client_message_id"], item["sender"], ", ".join(item["missing"])) for item in found["items"]]
    lines = session.out.table(("client message id", "sender", "missing"), rows) if rows else ["no violations"]
    session.out.document(found, lines)
    return 1 if found["violations"] else 0


@broker.command()
@STORE
@click.option(
    "--plan",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Only what the pipeline planned, as JSON lines; what retention does not allow is refused.",
)
@click.pass_obj
def sweep(session: Session, store: str | None, plan: Path | None) -> None:
    """Delete what is older than retention allows; a broker may be running."""
    import asyncio  # noqa: PLC0415 - as above

    from claudemesh.broker import app  # noqa: PLC0415

    settings = build_settings(session, {"store": store})
    with session.waiting("sweeping the store"):
        swept = asyncio.run(app.sweep(settings) if plan is None else app.sweep_planned(settings, plan))
    session.out.document(swept, [f"{escape(name)}: {escape(count)}" for name, count in swept.items()])


@broker.command()
@STORE
@click.pass_obj
def restored(session: Session, store: str | None) -> None:
    """Say that the store came back from a backup: history goes on beyond what may have been lost."""
    import asyncio  # noqa: PLC0415 - as above

    from claudemesh.broker.app import restored as run  # noqa: PLC0415

    begun = asyncio.run(run(build_settings(session, {"store": store})))
    session.out.document(begun, [f"epoch {escape(begun['epoch'])} begins"])


@broker.command("rotate-resume-key")
@STORE
@click.pass_obj
def rotate_resume_key(session: Session, store: str | None) -> None:
    """Sign resume tokens with a new key; a running broker goes by it within a minute, and knows the old one."""
    import asyncio  # noqa: PLC0415 - as above

    from claudemesh.broker.app import rotate_resume_key as run  # noqa: PLC0415

    rotated = asyncio.run(run(build_settings(session, {"store": store})))
    session.out.document(rotated, [f"{escape(rotated['keys'])} keys are good now, the new one signs"])


def build_settings(session: Session, said: dict[str, str | None]) -> "BrokerSettings":
    """Put together what the file, the environment and the command line say; the command line wins."""
    from msgspec.structs import replace  # noqa: PLC0415 - not for `--help`

    from claudemesh.runtime.settings import load_with_sources  # noqa: PLC0415

    session.home.ensure()
    loaded = load_with_sources(file_settings(session.home.broker_db), session.home.root / FILE)
    settings = loaded.checked()
    # What a file names lies beside it, wherever the command is given.
    beside = {
        name: str(session.home.root / path) for name in FILES if (path := getattr(settings, name)) is not None
    }
    given = {name: value for name, value in said.items() if value is not None}
    if loaded.found["resume_token_key"].source.kind == "file":
        read_private(session.home.root / FILE)  # which refuses one that others can read
    return replace(settings, **{**beside, **given})


def file_settings(broker_db: Path) -> "type[BrokerSettings]":
    """Return the settings with a store: the home's own, which the file need not name."""
    from claudemesh.broker.settings import BrokerSettings, Store  # noqa: PLC0415 - as above

    class FileSettings(BrokerSettings, frozen=True, kw_only=True):
        store: Store = f"sqlite:///{broker_db}"

    return FileSettings
