-- Every key that a caller used, who is at it, and what was answered. Times are wall milliseconds, but for the lease.
CREATE TABLE write_idempotency_keys (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, -- in the order in which they were first seen
  caller TEXT NOT NULL, -- whose key it is: two callers may use the same
  key TEXT NOT NULL,
  method TEXT NOT NULL,
  path TEXT NOT NULL, -- for people to read; what is compared is the hash
  request_hash BLOB NOT NULL CHECK (length(request_hash) = 32),
  state TEXT NOT NULL CHECK (state IN ('in_progress', 'settled', 'status_only')),
  owner TEXT NOT NULL, -- of the mark: new with every worker that takes it
  token INTEGER NOT NULL CHECK (token > 0), -- grows whenever it is taken over
  lease_boot TEXT NOT NULL, -- the start of the machine that `lease_until` is counted from
  lease_until INTEGER NOT NULL, -- milliseconds of the monotonic clock
  status INTEGER,
  headers BLOB,
  body BLOB,
  source_host TEXT NOT NULL,
  source_agent TEXT NOT NULL,
  first_seen INTEGER NOT NULL,
  last_seen INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  CONSTRAINT a_settled_key_has_a_status CHECK ((state = 'in_progress') = (status IS NULL)),
  CONSTRAINT only_a_settled_key_has_an_answer CHECK ((state = 'settled') = (body IS NOT NULL)),
  UNIQUE (caller, key)
) STRICT;

CREATE INDEX write_idempotency_keys_expiry ON write_idempotency_keys (expires_at);
