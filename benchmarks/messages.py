"""What is sent: messages of one kilobyte, of words, so that an index of words has its usual work."""

from collections.abc import Iterator
from itertools import cycle, islice

from claudemesh.kernel.fingerprint import Kind, SendRequest, fingerprint_send
from claudemesh.wire.frames import SendItem, render_item

SIZE = 1_024  # bytes of the whole JSON of one message, whoever carries it
ID_LENGTH = 24

_SYLLABLES = ("ba", "che", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu", "na", "pe", "ri", "so", "tu", "we")
_WORDS = [a + b + c for a in _SYLLABLES for b in _SYLLABLES[::3] for c in _SYLLABLES[::5]]


def render_send(to: str, id_: str, number: int, size: int = SIZE) -> bytes:
    """Return the body of one POST, padded with words to its size."""
    frame = b'{"to":"%b","message":"%%b","client_message_id":"%b"}' % (to.encode(), id_.encode())
    return frame % text(number, size - len(frame) + 2).encode()


def text(number: int, length: int) -> str:
    words = islice(cycle(_WORDS), number % len(_WORDS), number % len(_WORDS) + length // 4)
    return " ".join(words)[:length].replace(" ", ". ", 1)


def ids(run: str) -> Iterator[str]:
    """Yield ids of one length. `run` tells one measurement from the next: an id is used once."""
    number = 0
    while True:
        yield f"{run}-{number:0{ID_LENGTH - len(run) - 1}}"
        number += 1


def render_wire_item(kind: Kind, ref: str, id_: str, number: int) -> bytes:
    """Return a message as a daemon puts it into a frame, of about the same size."""
    body = text(number, SIZE - 250)
    fingerprint = fingerprint_send(SendRequest(kind=kind, ref=ref, body=body)).hex()
    return render_item(SendItem(client_message_id=id_, kind=kind, ref=ref, body=body, fingerprint=fingerprint))
