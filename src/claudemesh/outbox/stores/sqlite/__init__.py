"""The rows of an outbox in a SQLite file, as far as all outboxes have them in common."""
