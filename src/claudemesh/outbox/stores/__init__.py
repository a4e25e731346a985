"""Where the rows of an outbox are kept."""
