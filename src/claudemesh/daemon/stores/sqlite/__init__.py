"""The daemon's two files, outbox.db and inbox.db."""
