"""Measure how much of what is secret is found, and how much of what is not is taken for it.

`--write` renews the page that says so. `--alarms FOLDER…` counts, in texts that nobody made for this, the lines
that are taken for one with a secret.

The same samples (one seed) are shown to ours, `claudemesh.kernel.secrets`, and to detect-secrets with all of its
plugins but the one for public IP addresses, which are no credentials.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import TypeAlias

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # so that it runs by path as well as with -m

from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class  # noqa: E402  after the path is set
from detect_secrets.plugins.base import BasePlugin  # noqa: E402  as above

from claudemesh.kernel.secrets import find_secret, find_secret_text  # noqa: E402  as above
from tools.secret_harmless import HARMLESS  # noqa: E402  as above
from tools.secret_samples import SECRETS, Kind  # noqa: E402  as above

PAGE = ROOT / "docs/explanation/secrets.md"
BEGIN = "<!-- Written by `tools/secret_recall.py --write`. -->"
END = "<!-- end -->"
SEED = 8
SAMPLES = 200
NOT_CREDENTIALS = frozenset({"IPPublicDetector"})

Oracle: TypeAlias = dict[str, BasePlugin]


def plugins() -> Oracle:
    classes: Iterable[type[BasePlugin]] = get_mapping_from_secret_type_to_class().values()  # declared as of nothing
    return {found.__name__: found() for found in classes if found.__name__ not in NOT_CREDENTIALS}


def samples(kind: Kind) -> list[str]:
    random = Random(f"{SEED}/{kind.name}")  # noqa: S311  repeatable, not secret
    return [kind.make(random) for _ in range(SAMPLES)]


def is_text_found(text: str) -> bool:
    return find_secret_text(text) is not None


def is_found_by_us(sample: str) -> bool:
    return find_secret(json.loads(sample)) is not None if sample.startswith("{") else is_text_found(sample)


def is_found_by_oracle(sample: str, oracle: Oracle) -> bool:
    lines = sample.splitlines()
    return any(plugin.analyze_line(filename="sample", line=line) for line in lines for plugin in oracle.values())


def measure(kind: Kind, oracle: Oracle) -> tuple[float, float]:
    """Return which part of the samples is taken for a secret, by ours and by the oracle, in percent."""
    drawn = samples(kind)
    ours = sum(map(is_found_by_us, drawn))
    theirs = sum(is_found_by_oracle(sample, oracle) for sample in drawn)
    return 100 * ours / len(drawn), 100 * theirs / len(drawn)


def table() -> Iterator[str]:
    oracle = plugins()
    yield from ("| found, of what is secret | claudemesh | detect-secrets |", "|---|---|---|")
    yield from _rows(SECRETS, oracle)
    yield from ("", "| taken for a secret, of what is none | claudemesh | detect-secrets |", "|---|---|---|")
    yield from _rows(HARMLESS, oracle)


def _rows(kinds: tuple[Kind, ...], oracle: Oracle) -> Iterator[str]:
    sums = [0.0, 0.0]
    for kind in kinds:
        ours, theirs = measure(kind, oracle)
        sums = [sums[0] + ours, sums[1] + theirs]
        mark = "" if kind.plugin or kinds is HARMLESS else " (no plugin)"
        yield f"| {kind.name} | {ours:.1f} % | {theirs:.1f} %{mark} |"
    yield f"| **all {len(kinds)} kinds** | {sums[0] / len(kinds):.1f} % | {sums[1] / len(kinds):.1f} % |"


def render(page: str, lines: Iterator[str]) -> str:
    """Return the page with the lines between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{after}"


def alarms(folders: list[str]) -> tuple[int, int]:
    """Return how many lines of Python there are, blank ones left out, and how many are taken for a secret's."""
    lines = [
        line
        for folder in folders
        for path in sorted(Path(folder).rglob("*.py"))
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
        if line.strip()
    ]
    return len(lines), sum(map(is_text_found, lines))


def main(arguments: list[str]) -> int:
    if "--alarms" in arguments:
        print("{} lines, {} alarms".format(*alarms(arguments[1:])))
    elif "--write" in arguments:
        PAGE.write_text(render(PAGE.read_text(encoding="utf-8"), table()), encoding="utf-8")
    else:
        print("\n".join(table()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
