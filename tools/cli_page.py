"""The generated page on the command line: every command of the four programs, with its options and exit codes."""

import re
from collections.abc import Iterator, Mapping

import click

from claudemesh.cli import command as codes
from claudemesh.cli.documents import PRINTED
from tools.command_tree import walk
from tools.json_page import file_of
from tools.made import MADE

SHARED = ("--json", "--mesh", "--help", "--version")

EXITS = {
    codes.DONE: "done",
    codes.FAILED: "failed: it was refused, it went wrong, or a verdict is not a good one",
    codes.WRONG_USAGE: "wrong usage: the command was not understood, or what it was given cannot be right",
    codes.UNREACHABLE: "the other side is unreachable, be it a daemon, a broker, a relay or a hub",
    codes.CONFLICT: "a conflict: the id was used for something else, the lease is somebody else's (an HTTP 409)",
    codes.INTERRUPTED: "interrupted, by Ctrl-C",
}


def cli_page() -> Iterator[str]:
    yield from (
        MADE,
        "",
        "# The command line",
        "",
        "Four programs: `claudemesh`, `cortex` (the ledger), `statehub` (the hub, and operators of its relays) and",
        "`statehub-edge` (the relay).",
        "",
        "## Options of every command",
        "",
        "These may stand anywhere after the program's name.",
        "",
        "| option | |",
        "|---|---|",
        "| `--json` | Print one JSON document on standard output, or one object on each line: [which](json.md). |",
        "| `--mesh SLUG` | Which mesh, where one is meant; else `CLAUDEMESH_MESH`, else the only one joined. |",
        "| `-h`, `--help` | Say what there is, and what it does. |",
        "| `--version` | Print the version (of the program; without a command). |",
        "",
        "`CLAUDEMESH_HOME` (default `~/.claudemesh`) is the only place that a command writes to, unless a path is",
        "given. Colour is for a terminal only, and `NO_COLOR` is heard. A TIME is such as `500ms`, `30s`, `15m`,",
        '`24h` or `7d`. To have a shell complete all of this: `eval "$(claudemesh completions bash)"`.',
        "",
        "## Exit codes",
        "",
        "| code | |",
        "|---|---|",
        *(f"| {code} | {text} |" for code, text in EXITS.items()),
        "",
    )
    for context in walk():
        yield from _section(context)


def _section(context: click.Context) -> Iterator[str]:
    depth = "##" if context.parent is None else "###"
    yield from (f"{depth} `{context.command_path}`", "", *_paragraphs(context.command.help or ""))
    if isinstance(context.command, click.Group):
        return
    pieces = " ".join(context.command.collect_usage_pieces(context))
    yield from ("```", f"{context.command_path} {pieces}", "```", "")
    rows = [_option(context, one) for one in context.command.params if _is_own(one)]
    if rows:
        yield from ("| option | |", "|---|---|", *rows, "")
    yield from _printed(context.command_path)


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        yield from (" ".join(paragraph.split()), "")


def _is_own(parameter: click.Parameter) -> bool:
    is_shown = isinstance(parameter, click.Option) and not parameter.hidden
    return is_shown and (parameter.opts[0] not in SHARED or parameter.expose_value)


def _option(context: click.Context, option: click.Parameter) -> str:
    record = option.get_help_record(context)
    if record is None:
        raise LookupError(f"{context.command_path}: {option.opts[0]} has no help")
    names, text = record
    return f"| `{_cell(names)}` | {_cell(text)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _printed(path: str) -> Iterator[str]:
    of_command = {key: one for key, one in PRINTED.items() if key == path or _variant(key, path)}
    links = [
        f"[`{key.removeprefix(path).strip() or '--json'}`](json/{file_of(key)})"
        for key in of_command
        if of_command[key].types
    ]
    if links:
        yield from (f"JSON: {', '.join(links)}.", "")
    exits: Mapping[int, str] = {}
    for one in of_command.values():
        exits = {**exits, **(one.exits or {})}
    yield from (f"Exits with {code} if {text}." for code, text in exits.items())
    if exits:
        yield ""


def _variant(key: str, path: str) -> bool:
    return key.startswith(f"{path} ") and "--version" not in key
