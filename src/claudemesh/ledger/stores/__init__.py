"""Where a ledger is kept: SQLite, and nothing else, as its law says."""
