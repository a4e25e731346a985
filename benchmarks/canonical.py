"""Canonical JSON against the `rfc8785` package, on the meta objects that most messages carry."""

import timeit
from collections.abc import Callable
from functools import partial

import rfc8785

from claudemesh.kernel.canonical import Json, canonicalize
from claudemesh.kernel.fingerprint import Kind, SendRequest, fingerprint_send

VALUES: dict[str, dict[str, Json]] = {
    "two short texts": {"build": "42", "branch": "main"},
    "mixed, nested": {"build": "42", "ok": True, "n": 7, "tags": ["a", "b"], "by": {"name": "ana"}},
    "with fractions": {"loss": 0.125, "steps": [1.5, 2.5], "name": "ana"},
}


def cost_us(call: Callable[[], object], number: int) -> float:
    return min(timeit.repeat(call, number=number, repeat=5)) / number * 1e6


def run(scale: float) -> None:
    number = int(20_000 * scale)
    for name, value in VALUES.items():
        ours = cost_us(partial(canonicalize, value), number)
        theirs = cost_us(partial(rfc8785.dumps, value), number)
        print(f"canonical form, {name:16} {ours:6.2f} us   rfc8785 {theirs:6.2f} us   ratio {ours / theirs:.2f}")
    request = SendRequest(kind=Kind.DM, ref="ab" * 32, body="x" * 1024, meta=VALUES["two short texts"])
    print(f"fingerprint of a 1 KiB send     {cost_us(partial(fingerprint_send, request), number):6.2f} us")
