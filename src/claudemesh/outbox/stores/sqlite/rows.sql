-- name: waiting
-- A destination's oldest rows, and what holds them back: all states are asked for that the index is on.
SELECT seq, client_message_id, destination, payload, enqueued_at, attempts, server_errors, status
FROM outbox
WHERE destination = ?1 AND status IN ('pending', 'inflight', 'conflict')
ORDER BY seq LIMIT ?2;

-- name: overdue
-- Waiting rows that are too old to be sent, whatever their destination, after the last one that was looked at.
SELECT seq, client_message_id, destination, payload, enqueued_at, attempts, server_errors, status
FROM outbox INDEXED BY outbox_by_age
WHERE
    status IN ('pending', 'inflight') AND status = 'pending'
    AND enqueued_at < ?1 AND (enqueued_at, seq) > (?2, ?3)
ORDER BY enqueued_at, seq LIMIT ?4;

-- name: claim
-- The guard is the state: a row that somebody else moved is not ours.
UPDATE outbox SET status = 'inflight' WHERE seq = ?1 AND status = 'pending';

-- name: states_of
-- Before events are applied: what they would be applied to, all in one row.
SELECT json_group_array(json_array(seq, status)) FROM outbox
WHERE seq IN (SELECT seqs.value FROM json_each(?1) AS seqs);

-- name: recover
-- A restart: nobody knows what became of these.
UPDATE outbox SET status = 'pending', attempts = attempts + 1, next_attempt_at = ?1 WHERE status = 'inflight';

-- name: backlog
-- Every destination with waiting rows, and when its oldest may go. One in conflict holds back those behind it.
SELECT destination, next_attempt_at, min(seq)
FROM outbox WHERE status IN ('pending', 'inflight', 'conflict') GROUP BY destination;

-- name: bounds
-- Which file this is, and its last row; rows are never swept.
SELECT (SELECT value FROM remembered WHERE name = 'epoch'), 0, coalesce((SELECT max(seq) FROM outbox), 0);

-- name: oldest_open
-- The one that has waited longest.
SELECT min(enqueued_at) FROM outbox INDEXED BY outbox_by_age WHERE status IN ('pending', 'inflight');

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
-- Empty a settled row. What answers a retry stays: id, fingerprint, state, and what the answer brought.
UPDATE outbox SET payload = x'' WHERE seq = ?1 AND status IN ('done', 'aborted') AND payload <> x'' RETURNING 1;

-- name: ancestors
-- The row that this one took the place of.
SELECT id FROM outbox WHERE superseded_by = ?1;

-- name: counts
-- What is to be sent, what of it is out, and what waits for an operator, in conflict or dead: each from its index
-- alone.
SELECT
    (SELECT count(*) FROM outbox INDEXED BY outbox_by_age WHERE status IN ('pending', 'inflight')),
    (SELECT count(*) FROM outbox INDEXED BY outbox_inflight WHERE status = 'inflight'),
    (SELECT count(*) FROM outbox INDEXED BY outbox_conflict WHERE status = 'conflict'),
    (SELECT count(*) FROM outbox INDEXED BY outbox_dead WHERE status = 'dead');
