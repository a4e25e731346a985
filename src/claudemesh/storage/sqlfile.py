"""Named queries out of `.sql` files, so that all data access of a subsystem can be read in one place.

A file is a list of blocks, each a name, a sentence that says why, and the statement:

    -- name: claim_due
    -- The oldest row whose time has come; one at a time for each destination.
    SELECT …
"""

import re
from importlib.resources.abc import Traversable

_NAME = re.compile(r"^-- name: (?P<name>[a-z][a-z0-9_]*)[ \t]*$", re.MULTILINE)


class Queries:
    """The statements of one file by name; an unknown name is a KeyError at once, not an SQL error later."""

    def __init__(self, by_name: dict[str, str]) -> None:
        self._by_name = by_name

    def __getitem__(self, name: str) -> str:
        return self._by_name[name]

    def names(self) -> list[str]:
        return list(self._by_name)


def load_queries(file: Traversable, *more: Traversable) -> Queries:
    """Read one file, or several that belong together: then no name may stand in two of them."""
    texts = [one.read_text(encoding="utf-8") for one in (file, *more)]
    return parse_queries("\n\n".join(texts), ", ".join(one.name for one in (file, *more)))


def parse_queries(text: str, source: str) -> Queries:
    heads = list(_NAME.finditer(text))
    if not heads or _statement(text[: heads[0].start()]):
        raise ValueError(f"{source} does not begin with '-- name: …'")
    queries: dict[str, str] = {}
    for head, end in zip(heads, [*(head.start() for head in heads[1:]), len(text)], strict=True):
        name, block = head["name"], text[head.end() : end]
        if name in queries:
            raise ValueError(f"{source} has two queries called {name}")
        if not block.lstrip().startswith("--"):
            raise ValueError(f"{source}: {name} does not say in a sentence what it is for")
        queries[name] = _statement(block)
        if not queries[name]:
            raise ValueError(f"{source}: {name} is empty")
    return Queries(queries)


def _statement(block: str) -> str:
    lines = [line for line in block.splitlines() if not line.lstrip().startswith("--")]
    return "\n".join(lines).strip()
