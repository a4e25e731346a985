-- What the daemon keeps of a send beside what every outbox keeps: the broker's ids, once it has the message.
ALTER TABLE outbox ADD COLUMN broker_message_id TEXT CHECK (status <> 'done' OR broker_message_id IS NOT NULL);
ALTER TABLE outbox ADD COLUMN history_id INTEGER;

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
