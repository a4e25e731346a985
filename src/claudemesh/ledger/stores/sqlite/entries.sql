-- What is written and read, alike in all versions. `?` are the values; the database says what time it is.

-- name: posted
-- What the run has under this key.
SELECT m.message_id, m.source, m.payload_json, (
  SELECT job_id FROM cassette_jobs WHERE message_id = m.message_id ORDER BY ordinal LIMIT 1
) FROM cassette_messages AS m WHERE m.run_id = ?1 AND m.idempotency_key = ?2

-- name: post_message
-- The message; its place among all and its time are given by the database.
INSERT INTO cassette_messages (message_id, run_id, source, idempotency_key, payload_json) VALUES (?1, ?2, ?3, ?4, ?5)
RETURNING rowid, created_at

-- name: post_job
-- A job of it.
INSERT INTO cassette_jobs (job_id, message_id, intent, ordinal, created_at) VALUES (?1, ?2, ?3, ?4, ?5)

-- name: complete
-- The receipt; it commits the step.
INSERT INTO cassette_receipts (receipt_id, step_id, job_id, worker_id, fencing_token, outcome, receipt_json)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)

-- name: requeue
-- The record; it frees the step.
INSERT INTO cassette_requeues (requeue_id, step_id, worker_id, fencing_token, lease_expires_at)
VALUES (?1, ?2, ?3, ?4, ?5)

-- name: renew
-- The record; it extends the lease. A renewal never takes time away that was granted before, so it ends a moment
-- after the lease that stands, if not later.
INSERT INTO cassette_renewals (renewal_id, step_id, worker_id, fencing_token, lease_expires_at)
VALUES (
  ?1, ?2, ?3, ?4,
  max(strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?6), strftime('%Y-%m-%dT%H:%M:%fZ', ?5, '+0.001 seconds'))
)
RETURNING lease_expires_at

-- name: steps
-- How steps stand, by their places, in the order they were posted.
SELECT s.rowid AS place, m.run_id, m.message_id, s.job_id, j.intent, s.step_id, j.ordinal AS job_ordinal, s.ordinal,
  CASE WHEN s.status = 'LEASED' AND s.lease_expires_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now') THEN 1 ELSE 0 END
    AS is_expired,
  s.status, s.lease_owner, s.lease_expires_at, s.fencing_token, r.receipt_id, r.outcome,
  m.created_at AS posted_at, r.created_at AS completed_at
FROM cassette_steps AS s
JOIN cassette_jobs AS j ON j.job_id = s.job_id
JOIN cassette_messages AS m ON m.message_id = j.message_id
LEFT JOIN cassette_receipts AS r ON r.step_id = s.step_id
WHERE s.rowid IN (SELECT value FROM json_each(?1))
ORDER BY s.rowid

-- name: listing
-- The places of steps in the order they were posted, a page at a time.
SELECT s.rowid
FROM cassette_steps AS s
JOIN cassette_jobs AS j ON j.job_id = s.job_id
JOIN cassette_messages AS m ON m.message_id = j.message_id
WHERE s.rowid > ?3 AND (?1 IS NULL OR m.run_id = ?1) AND (?2 IS NULL OR s.status = ?2) AND (?5 IS NULL OR s.job_id = ?5)
ORDER BY s.rowid LIMIT ?4

-- name: receipts
-- The receipts of a message, by the run and the key that it was posted under.
SELECT r.receipt_id, r.step_id, r.job_id, r.worker_id, r.fencing_token, r.outcome, r.receipt_json, r.created_at
FROM cassette_messages AS m
JOIN cassette_jobs AS j ON j.message_id = m.message_id
JOIN cassette_steps AS s ON s.job_id = j.job_id
JOIN cassette_receipts AS r ON r.step_id = s.step_id
WHERE m.run_id = ?1 AND m.idempotency_key = ?2
ORDER BY r.rowid

-- name: step_of
-- The first step of a message, by the run and the key that it was posted under.
SELECT s.step_id, s.job_id, s.ordinal, s.status, s.lease_owner, s.lease_expires_at, s.fencing_token, s.payload_json
FROM cassette_messages AS m
JOIN cassette_jobs AS j ON j.message_id = m.message_id AND j.ordinal = 1
JOIN cassette_steps AS s ON s.job_id = j.job_id AND s.ordinal = 1
WHERE m.run_id = ?1 AND m.idempotency_key = ?2

-- name: held
-- The step of a run that a worker holds, the first of them.
SELECT s.step_id, s.job_id, j.message_id, s.ordinal, s.payload_json, s.fencing_token, s.lease_expires_at
FROM cassette_steps AS s
JOIN cassette_jobs AS j ON j.job_id = s.job_id
JOIN cassette_messages AS m ON m.message_id = j.message_id
WHERE m.run_id = ?1 AND s.lease_owner = ?2 AND s.status = 'LEASED'
  AND s.lease_expires_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
ORDER BY s.rowid LIMIT 1

-- name: receipt_of
-- The receipt of one step.
SELECT r.receipt_id, r.step_id, r.job_id, r.worker_id, r.fencing_token, r.outcome, r.receipt_json, r.created_at
FROM cassette_receipts AS r
JOIN cassette_jobs AS j ON j.job_id = r.job_id
JOIN cassette_messages AS m ON m.message_id = j.message_id
WHERE m.run_id = ?1 AND r.step_id = ?2

-- name: newest
-- The places of steps of all runs, the newest first. What is committed is most of it: a few are looked at in vain.
SELECT rowid FROM cassette_steps WHERE rowid < ?2 AND (?1 IS NULL OR status = ?1) ORDER BY rowid DESC LIMIT ?3

-- name: newest_open
-- As `newest`, of what is not committed: found in the index of that, however much is.
SELECT rowid FROM cassette_steps
WHERE (status = 'PENDING' OR status = 'LEASED') AND status = ?1 AND rowid < ?2
ORDER BY rowid DESC LIMIT ?3

-- name: count_open
-- How many wait, how many are held, and how many of these leases ended; and how many steps there are: their places
-- have no holes.
SELECT
  (SELECT count(*) FROM cassette_steps WHERE (status = 'PENDING' OR status = 'LEASED') AND status = 'PENDING'),
  (SELECT count(*) FROM cassette_steps WHERE (status = 'PENDING' OR status = 'LEASED') AND status = 'LEASED'),
  (
    SELECT count(*) FROM cassette_steps WHERE (status = 'PENDING' OR status = 'LEASED') AND status = 'LEASED'
      AND lease_expires_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
  ),
  (SELECT coalesce(max(rowid), 0) FROM cassette_steps)

-- name: shown
-- One step by its id: its place, what was asked, and what its receipt says.
SELECT s.rowid, s.payload_json, r.worker_id, r.receipt_json
FROM cassette_steps AS s
LEFT JOIN cassette_receipts AS r ON r.step_id = s.step_id
WHERE s.step_id = ?1
