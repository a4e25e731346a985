"""`config`: what a command would go by, and where each part of it comes from."""

from typing import Any

import click

from claudemesh.cli.command import Group, Session
from claudemesh.cli.render import escape


@click.group(cls=Group)
def config() -> None:
    """Look at the configuration."""


@config.command()
@click.pass_obj
def show(session: Session) -> None:
    """Show the settings in force: of this host, and of the mesh if one is meant."""
    around = session.surroundings
    joined = session.home.meshes()
    document: dict[str, Any] = {
        "home": str(around.home),
        "meshes": joined,
        "ci": around.ci,
        "container": around.container,
        "runtime_dir": None if around.runtime_dir is None else str(around.runtime_dir),
        "defaults": {"ephemeral": around.ephemeral, "tcp": around.tcp, "hooks": around.hooks},
    }
    lines = [f"{name} = {_written(value)}" for name, value in document.items()]
    if session.mesh or around.mesh or len(joined) == 1:
        path, settings = _settings(session)
        document |= {"mesh": session.slug, "file": str(path), "settings": settings}
        lines += ["", f"{escape(path)}{'' if path.exists() else ' (not there: all defaults)'}"]
        lines += [f"{escape(name)} = {_written(value)}" for name, value in settings.items()]
    session.out.document(document, lines)


def _written(value: object) -> str:
    """Write a value as a file would have it."""
    import json  # noqa: PLC0415 - only here

    return escape(json.dumps(value, ensure_ascii=False))


def _settings(session: Session) -> tuple[Any, dict[str, Any]]:
    from msgspec import to_builtins  # noqa: PLC0415 - only here

    from claudemesh.daemon.settings import Config  # noqa: PLC0415
    from claudemesh.runtime.settings import describe, load  # noqa: PLC0415

    path = session.state_dir / "config.toml"
    in_force = to_builtins(load(Config, path))
    found: dict[str, Any] = {}
    for setting in describe(Config):
        value: Any = in_force
        for part in setting.name.split("."):
            value = value[part]
        found[setting.name] = value
    return path, found
