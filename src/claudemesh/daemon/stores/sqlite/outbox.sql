-- name: insert_if_free
-- A taken id is left as it is; the number of changes tells whether any was.
INSERT INTO outbox (
    id, client_message_id, request_fingerprint, to_asked, destination, payload, enqueued_at, next_attempt_at, status
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, 'pending')
ON CONFLICT (client_message_id) DO NOTHING;

-- name: standing
-- What stands under an id, tombstones included.
SELECT id, status, request_fingerprint, to_asked, destination, broker_message_id, history_id, last_error
FROM outbox WHERE client_message_id = ?1;

-- name: waiting
-- A destination's oldest rows. Both states are asked for, since that is what the index is on.
SELECT seq, client_message_id, destination, payload, enqueued_at, attempts, server_errors, status
FROM outbox
WHERE destination = ?1 AND status IN ('pending', 'inflight')
ORDER BY seq LIMIT ?2;

-- name: overdue
-- Waiting rows that are too old to be sent, whatever their destination.
SELECT seq, client_message_id, destination, payload, enqueued_at, attempts, server_errors, status
FROM outbox INDEXED BY outbox_open
WHERE status IN ('pending', 'inflight') AND status = 'pending' AND enqueued_at < ?1
LIMIT ?2;

-- name: claim
-- The guard is the state: a row that somebody else moved is not ours.
UPDATE outbox SET status = 'inflight' WHERE seq = ?1 AND status = 'pending';

-- name: state_of
-- Before an event is applied: what it would be applied to.
SELECT status FROM outbox WHERE seq = ?1;

-- name: settle
-- Apply an event to the state it was judged on.
UPDATE outbox SET
    status = ?3,
    attempts = attempts + ?4,
    server_errors = server_errors + ?5,
    next_attempt_at = ?6,
    last_error = ?7,
    broker_message_id = coalesce(?8, broker_message_id),
    history_id = coalesce(?9, history_id),
    delivered_at = coalesce(?10, delivered_at)
WHERE seq = ?1 AND status = ?2;

-- name: recover
-- A restart: nobody knows what became of these.
UPDATE outbox INDEXED BY outbox_open SET status = 'pending', attempts = attempts + 1, next_attempt_at = ?1
WHERE status IN ('pending', 'inflight') AND status = 'inflight';

-- name: backlog
-- Every destination with waiting rows, and when its oldest may go.
SELECT destination, next_attempt_at, min(seq)
FROM outbox WHERE status IN ('pending', 'inflight') GROUP BY destination;

-- name: find
-- By the row's id, the caller's id or the broker's.
SELECT * FROM outbox_seen WHERE id = ?1 OR client_message_id = ?1 OR broker_message_id = ?1
ORDER BY id = ?1 DESC, client_message_id = ?1 DESC LIMIT 1;

-- name: page
-- In the order of acceptance.
SELECT * FROM outbox_seen WHERE seq > ?1 ORDER BY seq LIMIT ?2;

-- name: page_dead
-- As `page`, for those that wait for an operator.
SELECT * FROM outbox_seen WHERE seq > ?1 AND status = 'dead' ORDER BY seq LIMIT ?2;

-- name: page_open
-- As `page`, for what is still to be sent.
SELECT * FROM outbox_seen WHERE seq > ?1 AND status IN ('pending', 'inflight') ORDER BY seq LIMIT ?2;

-- name: count_open
-- The depth of the queue, from its index alone.
SELECT status, count(*) FROM outbox WHERE status IN ('pending', 'inflight') GROUP BY status;

-- name: oldest_open
-- The one that has waited longest.
SELECT enqueued_at FROM outbox WHERE seq = (
    SELECT min(seq) FROM outbox INDEXED BY outbox_open WHERE status IN ('pending', 'inflight')
);

-- name: count_dead
-- What waits for an operator.
SELECT count(*) FROM outbox WHERE status = 'dead';

-- name: forget_members
-- The directory is replaced as a whole: whoever is not in the broker's answer is gone.
DELETE FROM directory;

-- name: remember_member
-- One line of the directory.
INSERT INTO directory (member_id, name, name_folded, pubkey, role) VALUES (?1, ?2, ?3, ?4, ?5);

-- name: members
-- The whole directory; it is held in memory while the daemon runs.
SELECT member_id, name, pubkey, role FROM directory ORDER BY name_folded;

-- name: remember
-- One small thing under its name.
INSERT INTO remembered (name, value) VALUES (?1, ?2)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: recall
-- And back.
SELECT value FROM remembered WHERE name = ?1;

-- name: retire_row
-- An operator gives an id up, from the state it was judged on; the id stays used for ever.
UPDATE outbox SET status = 'aborted', aborted_at = ?3, aborted_by = ?4, superseded_by = ?5
WHERE seq = ?1 AND status = ?2;

-- name: for_operator
-- What an operator's decision is judged on.
SELECT seq, status, payload, to_asked, attempts, client_message_id FROM outbox WHERE id = ?1;

-- name: ages
-- A page of rows, whatever became of them, in the order they were accepted.
SELECT seq, enqueued_at FROM outbox WHERE seq > ?1 ORDER BY seq LIMIT ?2;

-- name: prune
-- Empty a settled row. What answers a retry stays: id, fingerprint, state, both of the broker's ids.
UPDATE outbox SET payload = x'' WHERE seq = ?1 AND status IN ('done', 'aborted') AND payload <> x'' RETURNING 1;

-- name: ancestors
-- The row that this one took the place of.
SELECT id FROM outbox WHERE superseded_by = ?1;

-- name: used_bytes
-- Pages that hold something: what was emptied can be used again, although the file does not shrink.
SELECT (pages.page_count - free.freelist_count) * size.page_size
FROM pragma_page_count AS pages, pragma_freelist_count AS free, pragma_page_size AS size;
