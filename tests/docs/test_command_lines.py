"""Every command that a page, a message or a help text names exists, with the options it is shown with.

A line that is shown at a prompt is read as the program would read it, as far as to where it would begin to do
something. One that is named in passing may leave out what it needs (`claudemesh mesh invite`), but not invent.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from claudemesh.cli import cortex
from claudemesh.cli.command import Session
from claudemesh.cli.main import root as claudemesh
from claudemesh.cli.statehub.edge import edge
from claudemesh.cli.statehub.main import root as statehub

ROOT = Path(__file__).parents[2]
PROGRAMS = {"claudemesh": claudemesh, "cortex": cortex.root, "statehub": statehub, "statehub-edge": edge}
PAGES = sorted(path for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")] if path.name != "CHANGELOG.md")
SOURCES = sorted((ROOT / "src" / "claudemesh").rglob("*.py"))

PROMPT = re.compile(r"^(?:\w+)?[$#] (?=\S)|^ExecStart=", re.MULTILINE)
FENCE = re.compile(r"^```\w*\n.*?^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`((?:claudemesh|cortex|statehub|statehub-edge) [a-z-][^`]*)`")
SHORT = re.compile(
    r"`((?:broker|daemon|member|mesh|peer|pipeline|queue|topic) [a-z-][^`]*)`"
)  # without the program
SHELL = re.compile(r"[;&|<>]+")  # where a command ends, and the shell's own words begin
BEFORE = re.compile(r"sudo|-u|env|\w+=\S*|[a-z]+")  # what may stand before one: another user, variables
LEFT_OUT = "…"  # what a page does not spell out
# A file of the reader's, or a word in capitals that stands for a number.
NOT_HERE = re.compile(r"does not exist|No such file|'(?:[A-Z]+|…)' is not\b")


# --- finding them --------------------------------------------------------------------------------------


def commands(words: list[str]) -> Iterator[list[str]]:
    """Yield each command of ours on a line of a shell, without what stands before and behind it."""
    while words:
        stop = next((at for at, word in enumerate(words) if SHELL.fullmatch(word)), len(words))
        ours = [
            at for at in range(stop) if words[at].rpartition("/")[2] in PROGRAMS and words[at - 1 : at] != ["-u"]
        ]
        if ours and all(BEFORE.fullmatch(word) for word in words[: ours[0]]):
            yield [words[ours[0]].rpartition("/")[2], *words[ours[0] + 1 : stop]]
        words = words[stop + 1 :]


def split(line: str) -> list[str]:
    apart = re.sub(r"\$\(([^)]*)\)", r" ; \1 ; ", line)  # what one command is told by another
    lexer = shlex.shlex(re.sub(r"\d>", " > ", apart), posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split = True
    lexer.commenters = "#" if re.search(r"\s# ", line) else ""
    return list(lexer)


def typed(text: str) -> list[list[str]]:
    """Return the commands of ours that are shown at a prompt, or that a service runs."""
    found = []
    for fence in FENCE.findall(text):
        for line in re.sub(r"\\\n\s*", "", fence).splitlines():
            if PROMPT.match(line):
                found += list(commands(split(PROMPT.sub("", line))))
    return found


def named(text: str) -> list[list[str]]:
    """Return the commands of ours that a sentence names."""
    prose = FENCE.sub("", text)
    spans = [*SPAN.findall(prose), *(f"claudemesh {span}" for span in SHORT.findall(prose))]
    return [words for span in spans for words in commands(split(re.sub(r"[\[\]\s]+", " ", span)))]


# --- reading them --------------------------------------------------------------------------------------


def find(command: click.Command, rest: list[str]) -> tuple[click.Command, click.Context, list[str]]:
    """Return the command that is meant, where it stands, and the words that are left for it."""
    context = click.Context(command, obj=Session("claudemesh"))
    while isinstance(command, click.Group) and rest and re.match(r"[a-z]", rest[0]):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None, name
        command, context = found, click.Context(found, info_name=name, parent=context, obj=context.obj)
    return command, context, rest


def read(words: list[str], *, whole: bool) -> str | None:
    """Have a command line read, as far as to where it would begin to do something; return what is wrong with it."""
    is_cut = len(words) > 1 and words[-1] == LEFT_OUT and not words[-2].startswith("-")
    try:
        command, context, rest = find(PROGRAMS[words[0]], words[1:-1] if is_cut else words[1:])
        if not isinstance(command, click.Group):
            command.make_context(words[0], rest, parent=context.parent)
        elif whole and not set(rest) & {"--help", "--version"}:
            return "this is a group of commands, and not one"
    except click.exceptions.Exit:
        pass  # --help
    except click.ClickException as error:
        is_lacking = isinstance(error, click.MissingParameter) or "requires an argument" in error.message
        is_excused = is_lacking and not whole
        return None if is_excused or NOT_HERE.search(error.message) else error.format_message()
    return None


def wrong(lines: list[list[str]], *, whole: bool) -> dict[str, str]:
    return {shlex.join(words): found for words in lines if (found := read(words, whole=whole))}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert wrong(typed(text), whole=True) | wrong(named(text), whole=False) == {}


def test_every_command_that_the_program_itself_names_exists() -> None:
    lines = [words for path in SOURCES for words in named(path.read_text(encoding="utf-8"))]
    assert len(lines) > 10
    assert wrong(lines, whole=False) == {}


def test_the_pages_show_most_of_the_commands() -> None:
    shown = [words for page in PAGES for words in typed(page.read_text(encoding="utf-8"))]
    assert len(shown) > 60


# --- and it can fail -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "claudemesh demon up",
        "claudemesh daemon outbox settle --id X",
        "claudemesh send bob hello --urgent",
        "claudemesh send bob hello --priority soon",
        "claudemesh send bob",
        "claudemesh send bob hello there",
        "claudemesh daemon",
        "/opt/claudemesh/bin/claudemesh broker server",
        "SSL_CERT_FILE=/a/b claudemesh mesh join CODE --nom carol",
        "sudo -u claudemesh env CLAUDEMESH_HOME=/a claudemesh broker restore",
        "true && claudemesh mesh lists | cat",
        "claudemesh mesh join $(claudemesh mesh invites) --name bob",
        "statehub outbox resolve X --keep both",
        "statehub-edge --to http://127.0.0.1:1",
        "cortex cassette settle",
    ],
)
def test_a_command_that_is_shown_and_is_not_one_is_noticed(line: str) -> None:
    assert wrong(typed(f"```console\n$ {line}\n```\n"), whole=True)


@pytest.mark.parametrize(
    "line",
    [
        "claudemesh send bob hello --id greeting-1 --wait delivered",
        "claudemesh up 2>up.log &",
        "claudemesh daemon up   # in each of them",
        "claudemesh send '#deploys' '42 is out'",
        "claudemesh broker sweep --plan FILE",
        "claudemesh --version",
        "claudemesh queue ack builds --id … --token …",
        "cortex cassette verify --db x.db",
    ],
)
def test_a_command_that_is_one_is_left_alone(line: str) -> None:
    assert wrong(typed(f"```console\n$ {line}\n```\n"), whole=True) == {}


@pytest.mark.parametrize(
    "span", ["claudemesh mesh invites", "statehub outbox\nsettle", "claudemesh inbox --unread"]
)
def test_a_command_that_is_named_and_is_not_one_is_noticed(span: str) -> None:
    assert wrong(named(f"Say `{span}` then."), whole=False)


@pytest.mark.parametrize(
    "span", ["claudemesh mesh invite", "claudemesh daemon outbox", "claudemesh ledger VERB", "claudemesh ledger …"]
)
def test_a_command_that_is_named_may_leave_out_what_it_needs(span: str) -> None:
    assert wrong(named(f"Say `{span}` then."), whole=False) == {}
