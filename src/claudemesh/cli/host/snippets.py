"""What to paste into an agent host's own settings, for hosts whose files we do not change."""

import json
from dataclasses import dataclass
from typing import Any, Final

from claudemesh.cli.host.blocks import read_block
from claudemesh.cli.host.declared import EVENTS, HOOKS, NAME, SERVERS, Wanted

HOSTS: Final = ("claude-code", "codex", "cursor", "vscode", "gemini", "generic")


@dataclass(frozen=True, slots=True)
class Snippet:
    where: str
    text: str


def render_snippets(host: str, wanted: Wanted) -> list[Snippet]:
    server = wanted.server()
    bare = {name: value for name, value in server.items() if name != "type" and value}
    plain = _json({SERVERS: {NAME: bare}})
    hooks = {HOOKS: {event: [wanted.hook_group(event)] for event in EVENTS}}
    return {
        "claude-code": [
            Snippet("~/.claude.json, or .mcp.json in a project", _json({SERVERS: {NAME: server}})),
            Snippet("~/.claude/settings.json, or .claude/settings.json in a project", _json(hooks)),
        ],
        "codex": [Snippet("~/.codex/config.toml, or .codex/config.toml in a trusted project", _toml(bare))],
        "cursor": [Snippet("~/.cursor/mcp.json, or .cursor/mcp.json in a project", plain)],
        "vscode": [
            Snippet(
                ".vscode/mcp.json, or the mcp.json of your profile",
                _json({"servers": {NAME: {"type": "stdio", **bare}}}),
            )
        ],
        "gemini": [Snippet("~/.gemini/settings.json, or .gemini/settings.json in a project", plain)],
        "generic": [Snippet("wherever the host starts MCP servers over stdio", plain)],
        "agents-md": [Snippet("AGENTS.md in a project", read_block())],
    }[host]


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _toml(entry: dict[str, Any]) -> str:
    """Return the entry as a table. A JSON string is a TOML string too, if it is all ASCII."""
    lines = [f"[mcp_servers.{NAME}]"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in entry.items() if name != "env"]
    if "env" in entry:
        lines += ["", f"[mcp_servers.{NAME}.env]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in entry["env"].items()]
    return "\n".join(lines)
