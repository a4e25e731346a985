"""What may leave the machine in a bundle. Whatever is not known to be harmless is taken out.

Four rules, for every text: a secret of this home that is known word for word goes; a path is shown below the home
only; a long run of letters and digits becomes a mark, the same mark for the same run, so that two places can still
be compared; and a text that looks like a credential goes as a whole. And one for every field, of what others wrote:
whatever stands under the name of a secret, or of what a message holds, goes whole, be it a number or an object.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from claudemesh.cli.doctor.scene import Scene
from claudemesh.cli.settings_files import find_login, hide_passwords
from claudemesh.edge.credentials import TOKEN
from claudemesh.kernel.errors import MeshError
from claudemesh.kernel.secret_names import names_secret, split_words
from claudemesh.kernel.secrets import find_secret_text
from claudemesh.runtime.home import read_private

HOME: Final = "$CLAUDEMESH_HOME"
SECRET: Final = "(secret)"  # noqa: S105 - in the place of one
SECRET_CHARS_MIN: Final = 8  # a shorter one would be found in harmless words
TEXT_CHARS_MAX: Final = 500
DIGITS_OF_WORDS: Final = 3  # a long run with so few digits and no capital is made of words
DEPTH_MAX: Final = 20

# A path, also after a colon; but not the host of an address, and not what is below the home.
_PATH: Final = re.compile(r"(?<![\w$/.~-])~?/(?!v\d+/|/[^/]|/+\$)[^\s\"'`,;:()\[\]{}<>|]+")
_RUN: Final = re.compile(r"(?<![\w$])[A-Za-z0-9_+=-]{24,}")
_HELD: Final = frozenset({"body", "meta", "cookie"})  # names of what a message or a request holds
_TOKENS: Final = ("local_token", "ledger.key")


class Redactor:
    def __init__(self, scene: Scene) -> None:
        self._home = str(scene.home.root)
        found = {text.strip() for text in known_secrets(scene)}
        self._secrets = sorted((text for text in found if len(text) >= SECRET_CHARS_MIN), key=len, reverse=True)

    def text(self, text: str) -> str:
        """Return a line as it may leave."""
        for secret in self._secrets:
            text = text.replace(secret, SECRET)
        text = hide_passwords(text).replace(self._home, HOME)
        text = _RUN.sub(_mark, _PATH.sub("(path)", text))
        if find_secret_text(text) is not None:
            return SECRET
        return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}…"

    def value(self, value: Any, depth: int = 0, *, is_declared: bool = False) -> Any:  # noqa: ANN401 - JSON is anything
        """Return JSON as it may leave: every text in it, names of fields too.

        Of settings it is declared which are secrets, and those are hidden already: their names give nothing away.
        """
        if depth > DEPTH_MAX:
            return "(deeper)"
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                self.text(str(name)): SECRET
                if not is_declared and _gives_away(str(name), one)
                else self.value(one, depth + 1, is_declared=is_declared)
                for name, one in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(one, depth + 1, is_declared=is_declared) for one in value]
        return value if value is None or isinstance(value, bool | int | float) else self.text(str(value))


def _gives_away(name: str, value: object) -> bool:
    """Say whether a field's name tells that its value may not leave; that there is none, or one, is no secret."""
    if value is None or isinstance(value, bool):
        return False
    if name.casefold() in _HELD or names_secret(name):
        return True
    # A number of tokens is how many there are, and a list of them is they themselves.
    return split_words(name)[-1:] == ["tokens"] and not isinstance(value, int | float)


def _mark(run: re.Match[str]) -> str:
    text = run[0]
    is_id = len(text) == 26 and text.isalnum() and text.isupper()  # noqa: PLR2004 - a ULID
    is_words = sum(one.isdigit() for one in text) <= DIGITS_OF_WORDS and not any(one.isupper() for one in text)
    return text if is_id or is_words else f"#{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def known_secrets(scene: Scene) -> Iterator[str]:
    """Yield what this home keeps secret, as far as it can be read."""
    for name in (TOKEN, "RESUME_TOKEN_KEY"):
        yield from scene.environment.get(name, "").split(",")
    for file in scene.files:
        for found in file.loaded.found.values():
            if isinstance(found.value, str):
                yield from _passwords(found.value)
        named = (file.loaded.found.get(name) for name in ("token_file", "admin_token_file"))
        yield from (_read(scene.home.root / str(one.value)) for one in named if one and one.value)
        key = file.loaded.found.get("resume_token_key")
        yield from str(key.value).split(",") if key and key.value else ()
    folders = [scene.home.root, scene.home.edge_dir, *(scene.home.mesh_dir(slug) for slug in scene.meshes)]
    yield from (_read(folder / name) for folder in folders for name in _TOKENS)
    yield from _seeds(folders, scene.home.root / "pending")


def _passwords(url: str) -> Iterator[str]:
    """Yield what may be the password of a URL: up to its last @ and, if others follow, up to each of them."""
    found = find_login(url)
    if found is not None:
        parts = found[1].split("@")
        yield from ("@".join(parts[:count]) for count in range(1, len(parts) + 1))


def _seeds(folders: list[Path], pending: Path) -> Iterator[str]:
    pairs = [folder / name for folder in folders for name in ("keypair.json", "keypair.pending.json")]
    for path in [*pairs, *sorted(pending.glob("*.json")), *(folder / "ledger.key" for folder in folders)]:
        try:
            stored = json.loads(_read(path) or "{}")
        except (ValueError, RecursionError):
            continue
        seed = stored.get("ed25519_seed") if isinstance(stored, dict) else None
        yield str(seed or "")


def _read(path: Path) -> str:
    try:
        return read_private(path).decode("utf-8", "replace")
    except (MeshError, OSError):
        return ""  # what cannot be read is not in the bundle either
