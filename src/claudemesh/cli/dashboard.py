"""`dashboard`: a link that opens the daemon's dashboard once, in a browser on this machine."""

from typing import Any

import click

from claudemesh.cli.command import Command, Session
from claudemesh.cli.daemon import supervisor_of
from claudemesh.cli.render import escape
from claudemesh.kernel.errors import ConfigError, NotFound

Json = dict[str, Any]


@click.command(cls=Command)
@click.option("--open", "is_opened", is_flag=True, help="Also open it in the browser.")
@click.pass_obj
def dashboard(session: Session, *, is_opened: bool) -> None:
    """Print a link to the dashboard. It works once, and not for long."""
    try:
        answer = ask_for_link(session)
    except NotFound as error:
        raise ConfigError("this daemon has no dashboard: `claudemesh daemon restart`") from error
    url = answer["url"]
    if url is None:
        raise ConfigError(
            f"this daemon listens on its socket only, which no browser can reach: stop {_way_to_a_port(session)}"
        )
    document = {"mesh": session.slug, "url": url, "expires_in_s": answer["expires_in_s"]}
    session.out.document(document, [escape(url)])
    session.out.say(f"good for {answer['expires_in_s']} s, and once")
    if is_opened:
        _open(session, url)


def ask_for_link(session: Session) -> Json:
    """Ask the daemon for a code; `url` is None where it listens on no port."""
    with session.client() as client:
        answer: Json = client.request("POST", "/v1/dashboard/code", {})[1]
    return answer


def _way_to_a_port(session: Session) -> str:
    supervisor = supervisor_of(session)
    if supervisor is None:
        return f"it, and `claudemesh daemon up --tcp --mesh {session.slug}`"
    return f"`claudemesh up` (process {supervisor or 'unknown'}), then `claudemesh up --tcp`"


def _open(session: Session, url: str) -> None:
    import webbrowser  # noqa: PLC0415 - only here

    if not webbrowser.open(url):
        session.out.say("no browser could be started here: open the link yourself")
