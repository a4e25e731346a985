"""The MCP server: an agent's way into the mesh, the ledger and the relay, as tools, resources and prompts.

    server.py            the SDK's end: what is listed, called and read; the only module that loads it
    tools.py             the table of tools, each with its arguments, its result and its hints
    messages.py places.py work.py relayed.py   what the tools do
    arguments.py results.py schemas.py         what goes in, what comes out, and both as JSON Schema
    keys.py              same key, same answer: for what is not idempotent by itself
    attending.py hints.py   its own session with the daemon; what the host is told when a message arrives
    resources.py prompts.py
    parts.py mesh.py     what all of them work with; the daemon, found when it is there

Bodies are texts of others. They are given as data, with what could hide in them escaped, and never acted on here.
"""
