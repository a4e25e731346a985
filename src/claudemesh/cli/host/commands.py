"""`install` and `uninstall`: claudemesh is declared to Claude Code or taken out; for others, what to paste."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from claudemesh.cli.command import Command, Session
from claudemesh.cli.host.declared import Wanted
from claudemesh.cli.host.places import (
    SCOPES,
    Place,
    Scope,
    derive_wanted,
    is_users,
    judge_texts,
    project_place,
    user_place,
)
from claudemesh.cli.host.plan import Part
from claudemesh.cli.host.receipt import load_receipt
from claudemesh.cli.host.snippets import HOSTS, Snippet, render_snippets
from claudemesh.cli.host.state import read_place
from claudemesh.cli.host.work import Step, plan_install, plan_uninstall, say_step
from claudemesh.cli.host.work import install as do_install
from claudemesh.cli.host.work import uninstall as do_uninstall
from claudemesh.cli.render import escape
from claudemesh.kernel.errors import ConfigError, HostFileRefused
from claudemesh.runtime.environment import read_environment
from claudemesh.runtime.extras import can_serve_mcp, how_to_get

HOST: Final = "claude-code"  # the one whose files we change
PRINTED: Final = (*HOSTS, "agents-md")

_scope = click.option(
    "--scope",
    type=click.Choice(SCOPES),
    default="user",
    show_default=True,
    help="For all your projects, or for this.",
)
_dry_run = click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
_follow = click.option("--follow-links", is_flag=True, help="Where a file is a link, change what it leads to.")


@click.command(cls=Command)
@_scope
@click.option("--host", type=click.Choice(HOSTS), default=HOST, show_default=True, help="The agent host.")
@click.option("--agents-md", is_flag=True, help="Also write a block into the project's AGENTS.md.")
@click.option(
    "--print", "printed", type=click.Choice(PRINTED), is_flag=False, flag_value=HOST, metavar="HOST",
    help=f"Only print what to paste: {', '.join(PRINTED)}.",
)  # fmt: skip
@_dry_run
@click.option("--force", is_flag=True, help="Replace an entry of the same name that is not ours.")
@_follow
@click.pass_obj
def install(  # noqa: PLR0913 - the options of one command
    session: Session,
    *,
    scope: Scope,
    host: str,
    agents_md: bool,
    printed: str | None,
    dry_run: bool,
    force: bool,
    follow_links: bool,
) -> None:
    """Declare the MCP server, two hooks and a skill to an agent host. A second run changes nothing."""
    if session.mesh is not None:
        session.home.mesh_dir(session.mesh)  # refuses what is no slug
    if agents_md and scope != "project":
        raise click.UsageError("--agents-md goes with --scope project: AGENTS.md is a project's")
    environment = read_environment()
    # One of several has to be named, since no tool of the server would know which, and one that is named has to be
    # joined, since hooks say nothing of one that is not. A project is for many machines.
    joined = session.home.meshes() if scope == "user" else []
    has_to_be_one = len(joined) > 1 or (joined and session.mesh is not None)
    wanted = derive_wanted(scope, environment, session.slug if has_to_be_one else session.mesh)
    judge_texts(wanted)
    if printed is not None or host != HOST:
        _print(session, printed or host, wanted)
        return
    place = _place(scope, environment)
    parts: list[Part] = ["skill", *(["agents"] if agents_md else []), "hooks", "server"]  # type: ignore[list-item]
    try:
        steps = plan_install(place, wanted, parts, force=force, follow=follow_links)
        if not dry_run:
            do_install(steps, session.home)
    except HostFileRefused as error:
        _offer(session, error, wanted)
        raise
    if dry_run:
        _tell(session, steps, scope, dry_run=True, more={}, shown=wanted)
    else:
        _tell(session, steps, scope, dry_run=False, more=_state(place, wanted))


@click.command(cls=Command)
@_scope
@_dry_run
@click.option("--force", is_flag=True, help="Remove the skill file even if it was changed.")
@_follow
@click.pass_obj
def uninstall(session: Session, *, scope: Scope, dry_run: bool, force: bool, follow_links: bool) -> None:
    """Take out of an agent host's files what `install` put in, and nothing else."""
    receipt = load_receipt(session.home)
    place = _place(scope, read_environment())
    steps = plan_uninstall(place, receipt, force=force, follow=follow_links)
    folders = [] if dry_run else do_uninstall(steps, session.home, receipt)
    _tell(session, steps, scope, dry_run=dry_run, more={"folders": [str(folder) for folder in folders]})


def _place(scope: Scope, environment: Any) -> Place:  # noqa: ANN401 - a mapping of texts
    if scope == "user":
        return user_place(environment)
    try:
        place = project_place(Path.cwd())
    except FileNotFoundError as error:
        raise ConfigError("the folder that this runs in was removed: go to the project's") from error
    if is_users(place, environment):
        raise ConfigError(
            f"this project is your home ({place.root}), and its files are yours: use --scope user, or make a "
            "repository of the project's own folder (git init). Nothing was written"
        )
    return place


def _state(place: Place, wanted: Wanted) -> dict[str, Any]:
    found = read_place(place, wanted)
    return {"state": [{**asdict(one), "path": str(one.path)} for one in found]}


# --- what is said ------------------------------------------------------------------------------------


def _tell(  # noqa: PLR0913 - all by name
    session: Session,
    steps: Sequence[Step],
    scope: Scope,
    *,
    dry_run: bool,
    more: dict[str, Any],
    shown: Wanted | None = None,
) -> None:
    changes = [step for step in steps if step.action != "keep"]
    document = {
        "host": HOST,
        "scope": scope,
        "dry_run": dry_run,
        "changed": bool(changes) and not dry_run,
        "steps": [{"part": step.part, "action": step.action, "path": str(step.held.path)} for step in steps],
        **more,
    }
    session.out.document(document, _lines(changes, shown, dry_run=dry_run))
    if shown is None and "state" in more and not can_serve_mcp():
        session.out.say(f"the server cannot start yet: it needs another package: {how_to_get('mcp')}")
    for step in steps:
        if step.left:
            session.out.say(f"{step.held.path} was changed since it was written, and stays; --force removes it")


def _lines(changes: Sequence[Step], shown: Wanted | None, *, dry_run: bool) -> Iterator[str]:
    if not changes:
        yield "nothing to do: all of it is as it should be"
        return
    for step in changes:
        yield escape(say_step(step))
        if shown is not None:  # what is put in, and not what stands around it: that is others'
            yield from (f"    {escape(line)}" for line in _put_in(step.part, shown))
    if dry_run:
        yield "nothing was changed (--dry-run)"
    else:
        yield "an open session of the host hears of it when it is started anew; `claudemesh doctor` checks it"


def _put_in(part: Part, wanted: Wanted) -> list[str]:
    if part == "skill":  # long, and the same everywhere
        return []
    if part == "agents":
        return render_snippets("agents-md", wanted)[0].text.splitlines()
    return render_snippets(HOST, wanted)[0 if part == "server" else 1].text.splitlines()


def _print(session: Session, host: str, wanted: Wanted) -> None:
    found = render_snippets(host, wanted)
    session.out.document({"host": host, "snippets": [asdict(one) for one in found]}, _snippet_lines(found))


def _snippet_lines(found: Sequence[Snippet]) -> Iterator[str]:
    for one in found:
        yield f"# {one.where}"
        yield from one.text.splitlines()


def _offer(session: Session, error: HostFileRefused, wanted: Wanted) -> None:
    """Show what could be pasted by hand: on standard error, or as part of the error's document."""
    found = render_snippets(HOST, wanted)
    if session.as_json:
        error.extras = {**error.extras, "snippet": "\n".join(_snippet_lines(found))}
        return
    session.out.say("to do it by hand, paste:")
    for line in _snippet_lines(found):
        click.echo(escape(line), err=True)
