"""The Python SDK. Its public names are those of `claudemesh` itself: `from claudemesh import Mesh`.

values      what a program is given: messages, receipts, traces, peers, work
asks        what can be asked of a daemon, and which of it may be asked twice
plans       what to ask next, when to wait, when to give up: decisions without IO
sockets     connections to a daemon, for any number of callers at once
blocking    runs a plan on a thread          mesh         Mesh and what belongs to it
waiting     runs a plan in an event loop     async_mesh   AsyncMesh and what belongs to it
find        where the daemon is
memory      a whole mesh in this process, for tests
bridge      a queue worked through a ledger  notes        what a home still has to answer for
"""
