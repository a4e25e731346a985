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
-- Waiting rows that are too old to be sent, whatever their destination, after the last one that was looked at.
SELECT seq, client_message_id, destination, payload, enqueued_at, attempts, server_errors, status
FROM outbox INDEXED BY outbox_by_age
WHERE
    status IN ('pending', 'inflight') AND status = 'pending'
    AND enqueued_at < ?1 AND (enqueued_at, seq) > (?2, ?3)
ORDER BY enqueued_at, seq LIMIT ?4;

-- name: newest_done
-- What the broker took last: its ids grow with time.
SELECT client_message_id FROM outbox WHERE broker_message_id IS NOT NULL AND status = 'done'
ORDER BY broker_message_id DESC LIMIT ?1;

-- name: claim
-- The guard is the state: a row that somebody else moved is not ours.
UPDATE outbox SET status = 'inflight' WHERE seq = ?1 AND status = 'pending';

-- name: states_of
-- Before events are applied: what they would be applied to, all in one row.
SELECT json_group_array(json_array(seq, status)) FROM outbox
WHERE seq IN (SELECT seqs.value FROM json_each(?1) AS seqs);

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
UPDATE outbox SET status = 'pending', attempts = attempts + 1, next_attempt_at = ?1 WHERE status = 'inflight';

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

-- name: bounds
-- Which file this is, and its last row; rows are never swept.
SELECT (SELECT value FROM remembered WHERE name = 'epoch'), 0, coalesce((SELECT max(seq) FROM outbox), 0);

-- name: counts
-- What is to be sent, what of it is out, and what waits for an operator: each from its index alone.
SELECT
    (SELECT count(*) FROM outbox INDEXED BY outbox_by_age WHERE status IN ('pending', 'inflight')),
    (SELECT count(*) FROM outbox INDEXED BY outbox_inflight WHERE status = 'inflight'),
    (SELECT count(*) FROM outbox INDEXED BY outbox_dead WHERE status = 'dead');

-- name: oldest_open
-- The one that has waited longest.
SELECT min(enqueued_at) FROM outbox INDEXED BY outbox_by_age WHERE status IN ('pending', 'inflight');

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
