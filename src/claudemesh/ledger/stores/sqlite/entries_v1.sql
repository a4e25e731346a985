-- What version 1 says in its own way.

-- name: post_step
-- A step of a job.
INSERT INTO cassette_steps (step_id, job_id, ordinal, payload_json, created_at) VALUES (?1, ?2, ?3, ?4, ?5)

-- name: next
-- The first step that is pending: of the message posted first, by the ordinals of job and step. All of the run's
-- pending steps are looked at, since no index knows that order.
SELECT s.rowid, s.step_id, s.job_id, j.message_id, s.ordinal, s.payload_json
FROM cassette_steps AS s
JOIN cassette_jobs AS j ON j.job_id = s.job_id
JOIN cassette_messages AS m ON m.message_id = j.message_id
WHERE s.status = 'PENDING' AND m.run_id = ?1
ORDER BY m.rowid, j.ordinal, s.ordinal LIMIT 1

-- name: claim
-- Lease it, under the next token.
UPDATE cassette_steps SET
  status = 'LEASED', lease_owner = ?2, fencing_token = fencing_token + 1,
  lease_expires_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?3)
WHERE rowid = ?1
RETURNING fencing_token, lease_expires_at

-- name: standing
-- A step, and the run that it belongs to.
SELECT m.run_id, s.job_id, s.lease_owner, s.fencing_token, s.lease_expires_at
FROM cassette_steps AS s
JOIN cassette_jobs AS j ON j.job_id = s.job_id
JOIN cassette_messages AS m ON m.message_id = j.message_id
WHERE s.step_id = ?1
