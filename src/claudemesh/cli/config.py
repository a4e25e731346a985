"""`config`: what a command would go by, and where each part of it comes from.

A file with a mistake in it is shown as far as it goes, with the mistake named; then the command fails.
"""

from typing import TYPE_CHECKING, Any

import click

from claudemesh.cli.command import DONE, FAILED, Group, Session
from claudemesh.cli.render import escape
from claudemesh.runtime.environment import read_environment

if TYPE_CHECKING:
    from claudemesh.cli.settings_files import SettingsFile
    from claudemesh.runtime.settings import Source


@click.group(cls=Group)
def config() -> None:
    """Look at the configuration."""


@config.command()
@click.pass_obj
def show(session: Session) -> int:
    """Show every setting in force, and where it came from: default, file, environment or command line."""
    from claudemesh.cli.settings_files import settings_files  # noqa: PLC0415 - all structs of settings

    environment = read_environment()
    joined = session.home.meshes()
    meant = [session.slug] if session.mesh or session.surroundings.mesh else joined
    around = _surroundings(session, environment)
    files = settings_files(session.home, meant, environment)
    problems = [f"{file.title}: {problem}" for file in files for problem in file.loaded.problems]
    document = {
        "surroundings": around,
        "meshes": joined,
        "files": [_document(file) for file in files],
        "problems": problems,
    }
    lines = ["surroundings", *_lines(session, around), f"meshes = {_written(joined)}"]
    for file in files:
        gone = "" if file.path.exists() else " (not there: all defaults)"
        lines += [
            "",
            f"{escape(file.title)}: {escape(file.path)}{gone}",
            *_lines(session, _document(file)["settings"]),
        ]
    lines += (
        ["", *(session.out.paint(f"wrong: {escape(problem)}", "red") for problem in problems)] if problems else []
    )
    session.out.document(document, lines)
    return FAILED if problems else DONE


def _surroundings(session: Session, environment: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - a mapping of texts
    from claudemesh.runtime.settings import Found, Source  # noqa: PLC0415 - as above
    from claudemesh.runtime.variables import trace  # noqa: PLC0415 - as above

    found = trace(session.surroundings, environment)
    joined = session.home.meshes()
    if session.mesh is not None:
        found["mesh"] = Found(session.mesh, Source("command line", "--mesh"))
    elif found["mesh"].value is None and len(joined) == 1:
        found["mesh"] = Found(joined[0], Source("default"))
    return [{"name": name, "value": one.value, "source": _source(one.source)} for name, one in found.items()]


def _document(file: "SettingsFile") -> dict[str, Any]:
    return {
        "part": file.part,
        "mesh": file.mesh,
        "path": str(file.path),
        "exists": file.path.exists(),
        "settings": [
            {"name": setting.name, "value": value, "source": _source(source)}
            for setting, value, source in file.in_force()
        ],
        "problems": file.loaded.problems,
    }


def _source(source: "Source") -> dict[str, Any]:
    return {"kind": source.kind, "name": source.name, "line": source.line}


def _lines(session: Session, settings: list[dict[str, Any]]) -> list[str]:
    texts = [f"{escape(one['name'])} = {_written(one['value'])}" for one in settings]
    wide = max(map(len, texts), default=0)
    return [
        f"{text.ljust(min(wide, 60))}  {session.out.paint('# ' + _told(one['source']), 'dim')}"
        for text, one in zip(texts, settings, strict=True)
    ]


def _told(source: dict[str, Any]) -> str:
    match source:
        case {"kind": "file", "line": int(line)}:
            return f"file, line {line}"
        case {"kind": ("environment" | "command line" | "file") as kind, "name": name}:
            return f"{kind}, {escape(name)}"
        case _:
            return "default"


def _written(value: object) -> str:
    """Write a value as a file would have it."""
    import json  # noqa: PLC0415 - only here

    return escape(json.dumps(value, ensure_ascii=False))
