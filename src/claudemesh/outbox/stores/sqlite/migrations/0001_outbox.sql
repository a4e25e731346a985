-- A row, from the moment it is acknowledged to whatever became of it. Rows are never deleted: a used id is never
-- released. `seq` is the order of acceptance, which an id or a clock could not promise over restarts.
CREATE TABLE outbox (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    client_message_id TEXT NOT NULL UNIQUE,
    request_fingerprint BLOB NOT NULL CHECK (length(request_fingerprint) = 32),
    to_asked TEXT NOT NULL,
    destination TEXT NOT NULL, -- what order is kept by
    payload BLOB NOT NULL, -- what is sent, frozen; empty in a tombstone
    enqueued_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    server_errors INTEGER NOT NULL DEFAULT 0,
    next_attempt_at INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('pending', 'inflight', 'done', 'conflict', 'dead', 'aborted')),
    last_error TEXT,
    delivered_at INTEGER,
    aborted_at INTEGER,
    aborted_by TEXT,
    superseded_by TEXT,
    CHECK ((status = 'aborted') = (aborted_at IS NOT NULL))
) STRICT;

-- What is still to be sent, and what holds others up until an operator decided: a destination's rows in their order.
-- A claim leaves it untouched, since both its states are in it.
CREATE INDEX outbox_open ON outbox (destination, seq) WHERE status IN ('pending', 'inflight', 'conflict');
CREATE INDEX outbox_by_age ON outbox (enqueued_at) WHERE status IN ('pending', 'inflight');
CREATE INDEX outbox_inflight ON outbox (seq) WHERE status = 'inflight';
CREATE INDEX outbox_conflict ON outbox (seq) WHERE status = 'conflict';
CREATE INDEX outbox_dead ON outbox (seq) WHERE status = 'dead';
CREATE INDEX outbox_by_successor ON outbox (superseded_by) WHERE superseded_by IS NOT NULL;

-- What must outlive a restart and is no row of its own; `epoch` marks this very file: a cursor of another one is told
-- so.
CREATE TABLE remembered (
    name TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO remembered (name, value) VALUES ('epoch', lower(hex(randomblob(8))));
