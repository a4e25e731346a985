"""Idempotent writes for any ASGI app: a key is run once, and its answer is given again.

    from claudemesh.idempotency import WriteIdempotencyMiddleware

    app.add_middleware(WriteIdempotencyMiddleware, store="sqlite:///./idempotency.db")

An app that has a database of its own, and settles the key in the very transaction of its write, does so with the
`Mark` in `scope[MARK]`: `complete(connection, KeptResponse(…))`.

middleware   what becomes of a request with a key
recording    what becomes of the app's answer to it
mark         what the app is handed
policy       what of a request and an answer is stored, and what is not
opening      which store a URL names
ports stores what is asked of a store; SQLite and PostgreSQL
"""

from claudemesh.idempotency.mark import MARK, Mark
from claudemesh.idempotency.middleware import WriteIdempotencyMiddleware
from claudemesh.idempotency.model import KeptResponse
from claudemesh.idempotency.ports import KeyStore

__all__ = ["MARK", "KeptResponse", "KeyStore", "Mark", "WriteIdempotencyMiddleware"]
