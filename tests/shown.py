"""What a page shows, against what was printed: without that which differs from run to run, or is left out."""

import re

LEFT_OUT = "…"  # a line of a page that stands for any number of lines
VARIES = (
    r"\b[0-9A-Z]{26}\b"  # ids
    r"|\b[0-9a-f]{16}\b"  # prefixes of fingerprints
    r"|\beyJ[\w-]+…?"  # invitations
    r"|\d{4}-\d\d-\d\d[T ][\d:.]+Z"
    r"|127\.0\.0\.1:\d+|kill -9 \d+|process \d+"
)


def shape(text: str) -> list[str]:
    """Leave out what differs from run to run: ids, fingerprints, codes, instants, ports and processes."""
    return [re.sub(VARIES, "N", line.rstrip()) for line in text.strip().splitlines()]


def missing(shown: str, printed: str) -> list[str]:
    """Return what a page shows and was not printed there: nothing, if all that the page has is in its order."""
    left = shape(printed)
    for part in re.split(rf"^{LEFT_OUT}$", "\n".join(shape(shown)), flags=re.MULTILINE):
        lines = part.strip("\n").splitlines()
        at = next((at for at in range(len(left)) if left[at : at + len(lines)] == lines), None)
        if at is None:
            return lines
        left = left[at + len(lines) :]
    return []
