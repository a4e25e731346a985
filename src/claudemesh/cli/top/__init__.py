"""`top`: how a daemon, its mesh, the relay and the ledger are, live. It asks and shows; it changes nothing.

`picture` says what an answer means and `tables` how it is laid out, both without IO; `looking` asks; `app` draws,
and is the only one that needs textual; `command` chooses between it and plain output.
"""
