"""The JSON Schema of every document that a command prints, and the page that lists them."""

import json
from collections.abc import Iterator

from claudemesh.cli.documents import PRINTED, Printed, Problem, one
from tools.examples import document_of, example_of
from tools.made import MADE

PROBLEM = "problem"


def file_of(key: str) -> str:
    """Return the name of a document's schema, of the words that lead to it."""
    return f"{key.replace(' --', '-').replace(' ', '-')}.json"


def schemas() -> dict[str, str]:
    """Return every schema by the name of its file."""
    found = {PROBLEM: one(Problem), **{key: printed for key, printed in PRINTED.items() if printed.types}}
    return {file_of(key): _schema(key, printed) for key, printed in found.items()}


def _schema(key: str, printed: Printed) -> str:
    title = "a failure" if key == PROBLEM else f"{key} --json{', each line' if printed.is_stream else ''}"
    return json.dumps(printed.schema(title), indent=2, ensure_ascii=False) + "\n"


def json_page() -> Iterator[str]:
    yield from (
        MADE,
        "",
        "# What commands print with `--json`",
        "",
        "Every command takes `--json`, and then prints one JSON document on standard output, or, if it follows",
        "something, one object on each line as it comes. What is said meanwhile goes to standard error. JSON is",
        "printed in ASCII.",
        "",
        "Each document has a JSON Schema (2020-12). What it requires is there in every version; further members",
        "may follow, so pass over those that you do not know. Whatever the tests make a command print is held",
        "against these schemas.",
        "",
        f"A command that fails prints a [problem](json/{PROBLEM}.json) in the place of its document, and its exit",
        "code tells which kind it is ([exit codes](cli.md#exit-codes)). A command that was asked for a verdict",
        "prints the verdict whatever it is, and says it by its exit code too.",
        "",
        *_example(document_of(Problem, conflict="outbox_done_fingerprint_mismatch")),
        "## Documents",
        "",
        "| command | prints | schema |",
        "|---|---|---|",
    )
    for key, printed in PRINTED.items():
        if not printed.types:
            yield f"| `{key}` | no document: {printed.instead} | |"
            continue
        file = file_of(key)
        yield f"| [`{key}`](#{file.removesuffix('.json')}) | {_kind(printed)} | [{file}](json/{file}) |"
    yield from ("", "## Examples", "")
    for key, printed in PRINTED.items():
        if printed.types:
            yield from (f"### `{key}`", "", *_example(example_of(printed)))


def _kind(printed: Printed) -> str:
    kind = "one object a line" if printed.is_stream else "one document"
    return f"{kind}, or `null`" if None in printed.types else kind


def _example(document: object) -> tuple[str, ...]:
    return ("```json", json.dumps(document, indent=2, ensure_ascii=False), "```", "")
