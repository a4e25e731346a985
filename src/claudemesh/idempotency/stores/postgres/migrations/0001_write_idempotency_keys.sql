-- Every key that a caller used, who is at it, and what was answered. Times are wall milliseconds, but for the lease.
-- Keys compare by their bytes (COLLATE "C"): a language's rules would be slow, and may change with the system.
CREATE TABLE write_idempotency_keys (
  seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- about in the order in which they were first seen
  caller text COLLATE "C" NOT NULL, -- whose key it is: two callers may use the same
  key text COLLATE "C" NOT NULL,
  method text NOT NULL,
  path text NOT NULL, -- for people to read; what is compared is the hash
  request_hash bytea NOT NULL CHECK (length(request_hash) = 32),
  state text NOT NULL CHECK (state IN ('in_progress', 'settled', 'status_only')),
  owner text NOT NULL, -- of the mark: new with every worker that takes it
  token bigint NOT NULL CHECK (token > 0), -- grows whenever it is taken over
  lease_until bigint NOT NULL, -- milliseconds of the server's clock
  status integer,
  headers bytea,
  body bytea,
  source_host text NOT NULL,
  source_agent text NOT NULL,
  first_seen bigint NOT NULL,
  last_seen bigint NOT NULL,
  expires_at bigint NOT NULL,
  CONSTRAINT a_settled_key_has_a_status CHECK ((state = 'in_progress') = (status IS NULL)),
  CONSTRAINT only_a_settled_key_has_an_answer CHECK ((state = 'settled') = (body IS NOT NULL)),
  UNIQUE (caller, key)
);

CREATE INDEX write_idempotency_keys_expiry ON write_idempotency_keys (expires_at);
