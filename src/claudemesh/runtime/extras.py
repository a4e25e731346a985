"""What is not installed with the rest, and how to get it."""

from importlib.util import find_spec


def how_to_get(extra: str) -> str:
    """Say it for both who have a checkout, and who installed the package."""
    return f"in a checkout `make setup`, else `pip install 'claudemesh[{extra}]'`"


def can_serve_mcp() -> bool:
    """Without loading it: that takes its time."""
    return find_spec("mcp") is not None
