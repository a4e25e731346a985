"""Where the upstream's credential comes from: a private file, or STATEHUB_TOKEN. It is never part of a message."""

from pathlib import Path
from typing import Final

from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime.home import read_private

TOKEN: Final = "STATEHUB_TOKEN"  # noqa: S105  the variable's name


def read_token(file: str | None, told: str | None) -> str | None:
    """Return the token in the file if one is named, else the one that was told; refuse what no header can carry."""
    if file is None:
        return None if told is None else _checked(told, TOKEN)
    try:
        return _checked(read_private(Path(file)).decode(), f"the token file {file}")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the token file {file} cannot be read") from error


def _checked(text: str, where: str) -> str:
    token = text.strip()
    if not token:
        raise ConfigError(f"{where} is empty")
    if any(not "!" <= character <= "~" for character in token):
        raise ConfigError(f"{where} holds a token that is not of visible ASCII characters")
    return token
