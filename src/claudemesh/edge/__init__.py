"""The relay: between the programs of one machine and a hub that may be away.

A write goes through at once while the hub can be reached. Otherwise the relay keeps it, says that it is queued and
not done, and replays it later under the same key. `routing.py` says which writes may wait.
"""
