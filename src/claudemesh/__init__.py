"""Durable, idempotent messages and work between agents and services on many machines.

Importing any part of the package runs this file first, so it stays light: public names are added here only
when they work, and are loaded on first use.
"""

__all__: list[str] = []
