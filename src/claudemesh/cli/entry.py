"""What the program `claudemesh` starts with: the hooks of an agent host at once, all else by the command line.

A hook runs with every prompt, so it loads no more than it needs: not the command line.
"""

import sys


def main() -> int:
    if sys.argv[1:2] == ["hook"]:
        from claudemesh.cli.host.hook import main as hook  # noqa: PLC0415 - only one of the two is loaded

        return hook(sys.argv[2:])
    from claudemesh.cli.main import main as command_line  # noqa: PLC0415 - as above

    return command_line()
