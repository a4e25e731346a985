"""`statehub-edge`: the relay, between callers on this machine and the one hub.

Its settings are `edge.toml` in the home, or variables that begin with CLAUDEMESH_EDGE__; the command line wins. The
hub's credential is in a private file or in STATEHUB_TOKEN, never on the command line. All that is wrong with the
settings is said at once.
"""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from claudemesh.cli.command import Command, Session, parse_listen
from claudemesh.cli.main import VERSION
from claudemesh.cli.main import run as run_command
from claudemesh.cli.render import escape
from claudemesh.edge.credentials import TOKEN
from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime.environment import read_environment

if TYPE_CHECKING:
    from claudemesh.edge.app import Place
    from claudemesh.edge.settings import EdgeSettings

FILES: Final = ("token_file", "routes")


@click.command(cls=Command, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--upstream", metavar="URL", help="The hub, the only one it ever contacts. [default: http://127.0.0.1:18000]"
)
@click.option(
    "--listen", type=parse_listen, metavar="HOST:PORT", help="Where callers reach it. [default: 127.0.0.1:18080]"
)
@click.option(
    "--routes", "--policy", "routes", metavar="FILE", help="The route policy of another API than a hub's."
)
@click.option("--token-file", metavar="FILE", help=f"The hub's token, in a private file; or {TOKEN}.")
@click.option(
    "--require-token/--no-require-token", default=None, help="Ask callers for the token in edge/local_token."
)
@VERSION
@click.pass_obj
def edge(session: Session, /, **said: Any) -> int:  # noqa: ANN401 - as the options name them
    """Relay writes to a State Hub, and keep them while it is away, until stopped; logs to standard error.

    A write that is kept is answered 202 with a receipt: evidence that it waits, not that it was done.
    """
    from claudemesh.edge.app import run  # noqa: PLC0415 - all of the relay

    settings, place = build_settings(session, said), build_place(session)
    check_settings(settings, place)

    def ready(url: str) -> None:
        document = {"url": url, "upstream": settings.upstream}
        session.out.document(document, [f"listening at {escape(url)}, upstream {escape(settings.upstream)}"])

    return run(settings, place, ready)


def build_settings(session: Session, said: dict[str, Any]) -> "EdgeSettings":
    """Put together what the file, the environment and the command line say; the command line wins."""
    from msgspec.structs import replace  # noqa: PLC0415 - not for `--help`

    from claudemesh.edge.settings import load_settings  # noqa: PLC0415 - as above

    settings = load_settings(session.home.root)
    # What a file names lies beside it, wherever the command is given.
    beside = {
        name: str(session.home.root / path) for name in FILES if (path := getattr(settings, name)) is not None
    }
    given = {name: value for name, value in said.items() if value is not None}
    return replace(settings, **{**beside, **given})


def build_place(session: Session) -> "Place":
    from claudemesh.edge.app import Place  # noqa: PLC0415 - as above

    session.home.ensure()
    return Place(
        folder=session.home.edge_dir,
        runtime_dir=session.surroundings.runtime_dir,
        token=read_environment().get(TOKEN) or None,
        log_to_stderr=True,
    )


def check_settings(settings: "EdgeSettings", place: "Place") -> None:
    """Refuse what the relay would stumble over, all of it at once."""
    from claudemesh.asgi import sockets  # noqa: PLC0415 - as above
    from claudemesh.edge import app  # noqa: PLC0415 - as above
    from claudemesh.edge.addresses import parse_networks  # noqa: PLC0415 - as above
    from claudemesh.edge.upstream import Upstream  # noqa: PLC0415 - as above

    checks: tuple[Callable[[], object], ...] = (
        lambda: parse_networks(settings.networks),
        lambda: Upstream(settings.upstream, networks=parse_networks(settings.networks)),
        lambda: sockets.bind_tcp(*sockets.parse_listen(settings.listen)[:2]).close(),
        lambda: app.read_routes(settings),
        lambda: app.read_credential(settings, place),
    )
    problems: list[str] = []
    for check in checks:
        try:
            check()
        except ConfigError as error:
            told = error.extras.get("problems")
            problems += told if isinstance(told, list) else [error.detail or error.title]
    problems = list(dict.fromkeys(problems))  # the networks are asked for twice
    if problems:
        raise ConfigError("; ".join(problems), problems=problems)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(edge, "statehub-edge", arguments)


if __name__ == "__main__":
    sys.exit(main())
