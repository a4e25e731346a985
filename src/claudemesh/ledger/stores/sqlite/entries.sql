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

-- name: listing
-- Steps in the order they were posted, a page at a time, with how they stand.
SELECT s.rowid AS place, m.run_id, m.message_id, s.job_id, j.intent, s.step_id, j.ordinal AS job_ordinal, s.ordinal,
  CASE WHEN s.status = 'LEASED' AND s.lease_expires_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now') THEN 1 ELSE 0 END
    AS is_expired,
  s.status, s.lease_owner, s.lease_expires_at, s.fencing_token, r.receipt_id, r.outcome,
  m.created_at AS posted_at, r.created_at AS completed_at
FROM cassette_steps AS s
JOIN cassette_jobs AS j ON j.job_id = s.job_id
JOIN cassette_messages AS m ON m.message_id = j.message_id
LEFT JOIN cassette_receipts AS r ON r.step_id = s.step_id
WHERE s.rowid > ?3 AND (?1 IS NULL OR m.run_id = ?1) AND (?2 IS NULL OR s.status = ?2)
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
