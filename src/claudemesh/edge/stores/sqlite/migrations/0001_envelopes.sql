-- What the relay keeps of a write beside what every outbox keeps.
ALTER TABLE outbox ADD COLUMN route_class TEXT NOT NULL DEFAULT 'append' CHECK (route_class IN ('append', 'replace'));
ALTER TABLE outbox ADD COLUMN is_status_write INTEGER NOT NULL DEFAULT 0; -- a later one makes it needless
ALTER TABLE outbox ADD COLUMN answer_status INTEGER CHECK (status <> 'done' OR answer_status IS NOT NULL);
ALTER TABLE outbox ADD COLUMN answer_headers TEXT; -- JSON, pairs
ALTER TABLE outbox ADD COLUMN answer BLOB; -- null where it was too large or too secret to keep
ALTER TABLE outbox ADD COLUMN theirs BLOB; -- of a conflict: the row as it is at the upstream

-- What happened to each envelope, in order: the audit that coalescing and settling leave behind.
CREATE TABLE envelope_event (
    seq INTEGER PRIMARY KEY,
    envelope INTEGER NOT NULL, -- its number in the outbox, from which nothing is ever deleted
    at INTEGER NOT NULL,
    was TEXT, -- null: it was accepted
    became TEXT NOT NULL,
    error TEXT,
    by TEXT,
    superseded_by TEXT
) STRICT;

CREATE INDEX envelope_event_of ON envelope_event (envelope, seq);

CREATE TRIGGER envelope_accepted AFTER INSERT ON outbox
BEGIN
    INSERT INTO envelope_event (envelope, at, became)
    VALUES (NEW.seq, CAST(unixepoch('subsec') * 1000 AS INTEGER), NEW.status);
END;

CREATE TRIGGER envelope_moved AFTER UPDATE OF status ON outbox WHEN OLD.status <> NEW.status
BEGIN
    INSERT INTO envelope_event (envelope, at, was, became, error, by, superseded_by)
    VALUES (
        NEW.seq, CAST(unixepoch('subsec') * 1000 AS INTEGER), OLD.status, NEW.status, NEW.last_error, NEW.aborted_by,
        NEW.superseded_by
    );
END;

CREATE TRIGGER envelope_rebased AFTER UPDATE OF payload ON outbox WHEN OLD.status = NEW.status AND NEW.payload <> x''
BEGIN
    INSERT INTO envelope_event (envelope, at, was, became, error)
    VALUES (NEW.seq, CAST(unixepoch('subsec') * 1000 AS INTEGER), OLD.status, NEW.status, 'rebased');
END;

CREATE TRIGGER envelope_event_stays BEFORE UPDATE ON envelope_event
BEGIN
    SELECT raise(ABORT, 'envelope_event is append-only');
END;

CREATE TRIGGER envelope_event_is_kept BEFORE DELETE ON envelope_event
BEGIN
    SELECT raise(ABORT, 'envelope_event is append-only');
END;

-- When the upstream was away, and when all that waited for it was settled.
CREATE TABLE outage (
    id TEXT NOT NULL PRIMARY KEY,
    began_at INTEGER NOT NULL,
    online_at INTEGER,
    recovered_at INTEGER,
    first_seq INTEGER NOT NULL -- the first envelope that could belong to it
) STRICT;

CREATE INDEX outage_open ON outage (began_at) WHERE recovered_at IS NULL;

-- An envelope as an operator sees it.
CREATE VIEW envelope_seen AS
SELECT
    seq, id, client_message_id, status, route_class, to_asked, destination, attempts, enqueued_at,
    coalesce((SELECT max(at) FROM envelope_event WHERE envelope = outbox.seq), enqueued_at) AS updated_at,
    next_attempt_at, delivered_at, last_error, superseded_by, aborted_by, answer_status, payload
FROM outbox;
