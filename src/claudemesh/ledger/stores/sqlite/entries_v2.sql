-- What version 2 says in its own way.

-- name: post_step
-- A step of a job, with its place in the order of claims.
INSERT INTO cassette_steps (step_id, job_id, ordinal, payload_json, created_at, run_id, message_order, job_ordinal)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)

-- name: next
-- The first step that is pending, as the index of those has it.
SELECT s.rowid, s.step_id, s.job_id, j.message_id, s.ordinal, s.payload_json
FROM cassette_steps AS s INDEXED BY ix_steps_open
JOIN cassette_jobs AS j ON j.job_id = s.job_id
WHERE s.status = 'PENDING' AND s.run_id = ?1
ORDER BY s.message_order, s.job_ordinal, s.ordinal LIMIT 1

-- name: claim
-- Lease it, under the next token.
UPDATE cassette_steps SET
  status = 'LEASED', lease_owner = ?2, fencing_token = fencing_token + 1,
  lease_expires_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?3), claimed_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
WHERE rowid = ?1
RETURNING fencing_token, lease_expires_at

-- name: expired
-- Leases of a run that ended without a receipt.
SELECT step_id FROM cassette_steps INDEXED BY ix_steps_open
WHERE status = 'LEASED' AND run_id = ?1 AND lease_expires_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
ORDER BY message_order, job_ordinal, ordinal

-- name: standing
-- A step, and the run that it belongs to.
SELECT run_id, job_id, lease_owner, fencing_token, lease_expires_at FROM cassette_steps WHERE step_id = ?1
