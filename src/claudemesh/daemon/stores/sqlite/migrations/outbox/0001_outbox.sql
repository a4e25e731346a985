-- A send, from the moment it is acknowledged to whatever became of it. Rows are never deleted: a used id is never
-- released. `seq` is the order of acceptance, which an id or a clock could not promise over restarts.
CREATE TABLE outbox (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    client_message_id TEXT NOT NULL UNIQUE,
    request_fingerprint BLOB NOT NULL CHECK (length(request_fingerprint) = 32),
    to_asked TEXT NOT NULL,
    destination TEXT NOT NULL, -- kind:ref, the recipient's key resolved at accept
    payload BLOB NOT NULL, -- the item of the send frame, frozen; empty in a tombstone
    enqueued_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    server_errors INTEGER NOT NULL DEFAULT 0,
    next_attempt_at INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('pending', 'inflight', 'done', 'dead', 'aborted')),
    last_error TEXT,
    delivered_at INTEGER,
    broker_message_id TEXT,
    history_id INTEGER,
    aborted_at INTEGER,
    aborted_by TEXT,
    superseded_by TEXT,
    CHECK (status <> 'done' OR broker_message_id IS NOT NULL),
    CHECK ((status = 'aborted') = (aborted_at IS NOT NULL))
) STRICT;

-- What is still to be sent, a destination's rows in their order. A claim leaves it untouched: both states are in it.
CREATE INDEX outbox_open ON outbox (destination, seq) WHERE status IN ('pending', 'inflight');
CREATE INDEX outbox_by_age ON outbox (enqueued_at) WHERE status IN ('pending', 'inflight');
CREATE INDEX outbox_inflight ON outbox (seq) WHERE status = 'inflight';
CREATE INDEX outbox_dead ON outbox (seq) WHERE status = 'dead';
CREATE INDEX outbox_by_successor ON outbox (superseded_by) WHERE superseded_by IS NOT NULL;
CREATE INDEX outbox_by_broker_id ON outbox (broker_message_id) WHERE broker_message_id IS NOT NULL;

-- A row as an operator sees it, without its payload.
CREATE VIEW outbox_seen AS
SELECT
    seq, id, client_message_id, status, to_asked, destination, attempts, enqueued_at, next_attempt_at, last_error,
    delivered_at, broker_message_id, history_id, request_fingerprint, aborted_at, aborted_by, superseded_by
FROM outbox;

-- Who is in the mesh, as last heard from the broker: names resolve from here also while it is away.
CREATE TABLE directory (
    member_id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    name_folded TEXT NOT NULL,
    pubkey TEXT NOT NULL UNIQUE,
    role TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- What must outlive a restart and is no row of its own: the last negotiated parameters, and `epoch`, which marks
-- this very file: a cursor of another one is told so.
CREATE TABLE remembered (
    name TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO remembered (name, value) VALUES ('epoch', lower(hex(randomblob(8))));
