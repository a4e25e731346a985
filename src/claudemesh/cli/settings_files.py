"""The settings files of a home: which there are, what is in force by them, and what of it may be shown."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from claudemesh.cli import broker
from claudemesh.cli.statehub import hub
from claudemesh.daemon.settings import Config
from claudemesh.edge import settings as edge
from claudemesh.runtime.home import Home
from claudemesh.runtime.settings import (
    PREFIX,
    Loaded,
    Setting,
    Source,
    describe,
    hint,
    load_with_sources,
    variable_of,
)
from claudemesh.runtime.variables import VARIABLES

Part = Literal["daemon", "broker", "hub", "relay"]

HIDDEN: Final = "(hidden)"

_ANY: Final = "any"  # a mesh, for the settings that all daemons have

_MISTYPED: Final = re.compile(r"[A-Za-z][\w+.-]*(?::/|//?)")  # a scheme whose :// has lost a character or two
_WORD: Final = re.compile(r"\S+")
_QUERY: Final = re.compile(r"(?i)([?&][\w.-]*(?:pass|secret|token|key)[\w.-]*=)[^&\s]+")


@dataclass(frozen=True)
class SettingsFile:
    part: Part
    mesh: str | None
    path: Path
    struct: type[msgspec.Struct]
    prefix: str
    environment: Mapping[str, str]

    @cached_property
    def loaded(self) -> Loaded[Any]:
        return load_with_sources(self.struct, self.path, self.environment, self.prefix)

    def in_force(self) -> list[tuple[Setting, object, Source]]:
        """Return each setting that is right, with its value as it may be shown and where it came from."""
        known = ((setting, self.loaded.found.get(setting.name)) for setting in describe(self.struct))
        return [(setting, shown(setting, found.value), found.source) for setting, found in known if found]

    @property
    def title(self) -> str:
        return self.part if self.mesh is None else f"{self.part} of {self.mesh}"


def settings_files(home: Home, meshes: list[str], environment: Mapping[str, str]) -> list[SettingsFile]:
    root = home.root
    daemons = [
        SettingsFile("daemon", slug, home.mesh_dir(slug) / "config.toml", Config, PREFIX, environment)
        for slug in meshes
    ]
    broker_type, hub_type = broker.file_settings(home.broker_db), hub.file_settings(home.hub_db)
    return [
        *daemons,
        SettingsFile("broker", None, root / broker.FILE, broker_type, PREFIX, environment),
        SettingsFile("hub", None, root / hub.FILE, hub_type, hub.OURS, environment),
        SettingsFile("relay", None, root / edge.FILE, edge.EdgeSettings, edge.PREFIX, environment),
    ]


def unheard(home: Home, environment: Mapping[str, str]) -> list[str]:
    """Say of each variable that begins as ours do and that nothing hears, which one may have been meant."""
    known = {variable.name for variable in VARIABLES}
    for file in settings_files(home, [_ANY], environment):
        for setting in describe(file.struct):
            known |= {variable_of(setting.name, file.prefix), *filter(None, [setting.variable])}
    return [
        f"{name} is unknown{hint(name, known)}"
        for name in sorted(environment)
        if name.startswith(PREFIX) and name not in known
    ]


def shown(setting: Setting, value: object) -> object:
    """Return a value as anybody may see it: no secret, and no password in a URL."""
    if setting.is_secret and value is not None:
        return HIDDEN
    plain = msgspec.to_builtins(value, enc_hook=str)
    return _hide_in_query(_hide_login(plain)) if isinstance(plain, str) else plain


def hide_passwords(text: str) -> str:
    """Return a line without the passwords of its URLs; where white space ends, so does a URL."""
    return _hide_in_query(_WORD.sub(lambda word: _hide_login(word[0]), text))


def find_login(url: str) -> tuple[str, str, str] | None:
    """Return what stands before a password, the password, and what follows it from its @ on; None without one.

    It ends at the last @, whatever is in between: a password with a / or # that nobody escaped is one all the same,
    and a path with an @ is better hidden than a password shown. So is `redis:/:password@host`, which is no URL.
    """
    scheme, mark, beyond = url.partition("://")
    if not mark:
        mistyped = _MISTYPED.match(url)
        scheme, beyond = (mistyped[0], url[mistyped.end() :]) if mistyped else ("", url)
    login, at, host = beyond.rpartition("@")
    user, colon, password = login.partition(":")
    return (f"{scheme}{mark}{user}:", password, f"{at}{host}") if colon else None


def _hide_login(url: str) -> str:
    found = find_login(url)
    return url if found is None else f"{found[0]}{HIDDEN}{found[2]}"


def _hide_in_query(text: str) -> str:
    return _QUERY.sub(rf"\1{HIDDEN}", text)
