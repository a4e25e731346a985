"""An outbox: rows that are durable before anybody is told so, and are sent until the other side has answered.

Two parts of the product keep one, and share all of this: the daemon, whose rows are messages for a broker, and the
relay, whose rows are writes for a hub. The states are in `kernel.outbox`, when to try again is in `kernel.retry`.

    model     the values that a sender and a store exchange
    ports     what the sender needs of a store
    lanes     which destinations may be sent to right now
    sender    the loop: claim, send, settle, in the order of each destination
    reading   what an answer makes of a row
    emptying  what settled rows held goes when it is old
    stores    the rows in SQLite, and what can be saved out of a damaged file
"""
