"""Print the table of requirements: id, state, how many tests name the id, sentence.

Run from the root of the repository: `python tools/trace.py [--json]`.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import get_args

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.faults.collect import collect
from tests.requirements import REQUIREMENTS, State


def main() -> None:
    parser = argparse.ArgumentParser(description="Print every requirement with its state and its tests.")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of the table")
    options = parser.parse_args()

    tests = Counter(id_ for ids in collect().values() for id_ in ids)
    states = Counter(row.state for row in REQUIREMENTS)
    totals = {state: states[state] for state in get_args(State)}
    if options.json:
        rows = [
            {
                "id": row.id,
                "state": row.state,
                "tests": tests[row.id],
                "faults": len(row.faults),
                "source": row.source,
                "sentence": row.sentence,
            }
            for row in REQUIREMENTS
        ]
        print(json.dumps({"requirements": rows, "totals": totals}, indent=2))
        return
    print("id   state    tests  sentence (tests = how many name the id)")
    for row in REQUIREMENTS:
        print(f"{row.id:<4} {row.state:<8} {tests[row.id]:>5}  {row.sentence}")
    print(", ".join(f"{count} {state}" for state, count in totals.items()))


if __name__ == "__main__":
    main()
