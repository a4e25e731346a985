-- name: end
-- The last link.
SELECT seq, hash FROM cassette_chain ORDER BY seq DESC LIMIT 1

-- name: append
-- A link for one row.
INSERT INTO cassette_chain (seq, kind, row_id, previous_hash, hash) VALUES (?1, ?2, ?3, ?4, ?5)

-- name: links
-- All links in their order.
SELECT seq, kind, row_id, previous_hash, hash FROM cassette_chain ORDER BY seq

-- name: link
-- One link.
SELECT hash FROM cassette_chain WHERE seq = ?1

-- name: message
-- A message as it is chained.
SELECT rowid AS place, message_id, run_id, source, idempotency_key, payload_json, created_at
FROM cassette_messages WHERE message_id = ?1

-- name: jobs
-- Its jobs, which are chained with it.
SELECT rowid AS place, job_id, message_id, intent, ordinal, created_at
FROM cassette_jobs WHERE message_id = ?1 ORDER BY rowid

-- name: steps
-- Their steps, which are chained with it as they were posted.
SELECT s.rowid AS place, s.step_id, s.job_id, s.ordinal, s.payload_json, s.created_at
FROM cassette_jobs AS j JOIN cassette_steps AS s ON s.job_id = j.job_id
WHERE j.message_id = ?1 ORDER BY s.rowid

-- name: receipt
-- A receipt as it is chained.
SELECT rowid AS place, receipt_id, step_id, job_id, worker_id, fencing_token, outcome, receipt_json, created_at
FROM cassette_receipts WHERE receipt_id = ?1

-- name: requeue
-- A requeue as it is chained.
SELECT rowid AS place, requeue_id, step_id, worker_id, fencing_token, lease_expires_at, created_at
FROM cassette_requeues WHERE requeue_id = ?1

-- name: renewal
-- A renewal as it is chained.
SELECT rowid AS place, renewal_id, step_id, worker_id, fencing_token, lease_expires_at, created_at
FROM cassette_renewals WHERE renewal_id = ?1

-- name: unchained_messages
-- Messages of a ledger that has no chain yet, in their order.
SELECT message_id FROM cassette_messages ORDER BY rowid

-- name: unchained_receipts
-- Its receipts, in their order.
SELECT receipt_id FROM cassette_receipts ORDER BY rowid
