"""The page of the MCP server, made from what it tells its clients: tools, resources, prompts."""

from collections.abc import Iterator
from typing import Any

from claudemesh.mcp import hints, prompts, resources, results
from claudemesh.mcp.schemas import describe
from claudemesh.mcp.server import INSTRUCTIONS
from claudemesh.mcp.tools import TOOLS, Tool
from tools.made import MADE

INTRODUCTION = """
`claudemesh mcp` serves the Model Context Protocol on standard input and output, for whichever agent host starts it
(`pip install 'claudemesh[mcp]'`). It speaks both eras of the protocol: the handshake (2024-11-05 to 2025-11-25) and
requests that bring all with them (2026-07-28). It runs without a daemon and without a mesh, too: then its tools say
what to start. Logs go to standard error.

Every result has `unread`. Every tool that changes something takes `idempotency_key`, and answers with the key and
with `replayed`: the same key with the same arguments is answered as the first time, with other arguments it is
refused as `idempotency_key_reused` (by the relay as `key_reused`). A refusal is a result with `isError`: a
sentence, and the [problem](errors.md) as JSON in a second text, with `code` and `retry`.
"""


def mcp_page() -> Iterator[str]:
    yield from (
        MADE,
        "",
        "# MCP server",
        INTRODUCTION,
        "What the server tells every host:",
        "",
        f"> {INSTRUCTIONS}",
        "",
    )
    yield from ("## Words", "", "Of a message, in `state`; each includes those before it:", "")
    yield from (f"- `{word}`: {said}" for word, said in results.STATES.items())
    yield from ("", "Of a write through the relay, in `outcome`:", "")
    yield from (f"- `{word}`: {said}" for word, said in results.WRITES.items())
    yield from ("", "## Tools", "")
    for tool in TOOLS.values():
        yield from _tool(tool)
    yield from ("## Resources", "", "JSON, in pages: `next_cursor` is the next one's `cursor`.", "")
    yield from ("| address | what |", "|---|---|")
    yield from (f"| `{one.template}` | {one.description} |" for one in resources.RESOURCES)
    yield from ("", "## Prompts", "", "| name | takes | what |", "|---|---|---|")
    for prompt in prompts.PROMPTS.values():
        taken = ", ".join(f"`{argument.name}`" for argument in prompt.arguments) or "nothing"
        yield f"| `{prompt.name}` | {taken} | {prompt.title}. {prompt.description} |"
    yield from (
        "",
        "## Hints to the host",
        "",
        f"A message that arrives is hinted at with `{hints.METHOD}`, to clients that declare the experimental",
        f"capability `{hints.CAPABILITY}` or are known to take it (`{'`, `'.join(hints.HOSTS)}`):",
        "one line without the body, with `message_id`, `sender`, `priority` and `topic` in `meta`. A message of",
        "priority `low` is not hinted at. A hint marks nothing as read, and may get lost: the inbox does not.",
        "",
    )


def _tool(tool: Tool) -> Iterator[str]:
    said = ["reads only" if tool.reads_only else "changes something"]
    said += ["may take something away"] if tool.destroys else []
    said += ["without a key it happens as often as it is called"] if tool.repeats else []
    yield from (f"### {tool.name}", "", f"*{tool.title}*: {', '.join(said)}.", "", tool.description, "")
    yield from _table("takes", describe(tool.arguments))
    yield from _table("answers", describe(tool.result))


def _table(head: str, schema: dict[str, Any]) -> Iterator[str]:
    yield from (f"| {head} | kind | |", "|---|---|---|")
    parts = schema.get("$defs", {})
    for name, field in schema["properties"].items():
        needed = "" if name not in schema.get("required", ()) or head == "answers" else " (needed)"
        yield f"| `{name}`{needed} | {_kind(field, parts)} | {_meaning(field)} |"
    yield ""


def _kind(field: dict[str, Any], parts: dict[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_kind(one, parts) for one in field["anyOf"]))
    if "$ref" in field:
        part = parts[field["$ref"].rpartition("/")[2]]
        return "{" + ", ".join(part["properties"]) + "}"
    if "enum" in field:
        return " or ".join(f"`{word}`" for word in field["enum"] if word is not None)
    if field.get("type") == "array":
        return f"list of {_kind(field['items'], parts)}"
    return str(field.get("type", "any JSON"))


def _meaning(field: dict[str, Any]) -> str:
    said = [field.get("description", ""), *(one.get("description", "") for one in field.get("anyOf", ()))]
    default = field.get("default")
    shown = "" if default in (None, "", [], results.UNTRUSTED) else f" Default: `{str(default).lower()}`."
    return "".join(said) + shown
