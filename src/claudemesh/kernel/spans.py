"""Ids of traces and spans that all who know a message derive alike, so that nothing has to travel for them."""

from hashlib import sha256

_TRACE_BYTES, _SPAN_BYTES = 16, 8  # as W3C Trace Context has them


def derive_trace_id(sender_pubkey: str, client_message_id: str) -> int:
    """Return the trace of a message: a sender's id means one message of that sender only."""
    return _number(f"trace\0{sender_pubkey}\0{client_message_id}", _TRACE_BYTES)


def derive_span_id(trace_id: int, step: str) -> int:
    """Return the span of a step in it. A step that is told twice, after a crash say, is one span."""
    return _number(f"span\0{trace_id:x}\0{step}", _SPAN_BYTES)


def _number(text: str, length: int) -> int:
    digest = sha256(text.encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:length], "big") or 1  # zero means none
