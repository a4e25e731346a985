"""`top`: on a terminal the live view, elsewhere one plain snapshot; with `--json` documents.

--json   {at, state, daemon, outbox, unread, rates, peers, dead, queues, relay, ledger, errors}, one a line; with
--once just one. `state` is "away" while no daemon answers, and with --once the exit code is then 3.
"""

import sys
from typing import TYPE_CHECKING, Final

import click

from claudemesh.cli.command import DONE, UNREACHABLE, Command, Session, parse_duration
from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.extras import how_to_get

if TYPE_CHECKING:
    from claudemesh.cli.top.looking import Looker
    from claudemesh.cli.top.picture import Look

INTERVAL_S_MIN: Final = 0.2
INTERVAL_S_MAX: Final = 3_600.0
WIDTH: Final = 100
MISSING: Final = f"the live view needs another package: {how_to_get('top')} (without it: `claudemesh top --once`)"


def parse_interval(text: str) -> float:
    seconds = parse_duration(text)
    if not INTERVAL_S_MIN <= seconds <= INTERVAL_S_MAX:
        raise click.BadParameter(f"{text!r} is not from {INTERVAL_S_MIN:g}s to {INTERVAL_S_MAX:g}s")
    return seconds


@click.command(cls=Command)
@click.option("--once", is_flag=True, help="Print one snapshot and end, as without a terminal.")
@click.option(
    "--interval", type=parse_interval, default="2s", show_default=True, metavar="TIME", help="How often to look."
)
@click.pass_obj
def top(session: Session, *, once: bool, interval: float) -> int:
    """Show live how the daemon, its mesh, the relay and the ledger are; it changes nothing."""
    from claudemesh.cli.top.looking import DEADLINE_S, Looker  # noqa: PLC0415 - not for `--help`
    from claudemesh.daemon.client import Client  # noqa: PLC0415 - as above

    clock, home = SystemClock(), session.home
    # Unrecorded: what is looked at is no event of anybody's.
    client = Client(session.state_dir / "sock", DEADLINE_S)
    with Looker(session.slug, client, home.edge_dir, home.ledger_db, clock) as looker:
        if session.as_json:
            return _print_documents(session, looker, None if once else interval)
        if once or session.surroundings.is_dumb or not (sys.stdin.isatty() and sys.stdout.isatty()):
            return _print_snapshot(session, looker.look())
        try:
            from claudemesh.cli.top.app import TopApp  # noqa: PLC0415 - only for a terminal
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("textual", "rich"):
                raise
            raise ConfigError(MISSING) from error
        app = TopApp(looker, clock, interval, no_color=session.surroundings.no_color)
        app.run()
        return app.return_code or DONE


def _print_documents(session: Session, looker: "Looker", interval_s: float | None) -> int:
    from claudemesh.cli.top.picture import History, to_document  # noqa: PLC0415 - as above
    from claudemesh.runtime.processes import pause  # noqa: PLC0415 - as above

    history = History()
    while True:
        look = looker.look()
        history.note(look)
        document = to_document(look, history)
        if interval_s is None:
            session.out.document(document, [])
            return UNREACHABLE if look.is_away else DONE
        session.out.entry(document, [])
        pause(interval_s)


def _print_snapshot(session: Session, look: "Look") -> int:
    from claudemesh.cli.top import tables  # noqa: PLC0415 - as above
    from claudemesh.cli.top.picture import History  # noqa: PLC0415 - as above

    out = session.out
    lines = [tables.first_line(look), *tables.summary(look, History(), WIDTH)]
    for table in tables.tables(look):
        lines += ["", f"{table.title}"]
        lines += out.table(table.heads, [row.cells for row in table.rows]) if table.rows else [f"  {table.empty}"]
    out.write(lines)
    return UNREACHABLE if look.is_away else DONE
