-- name: expired
-- Leases that ended without a receipt, of one run or of all: somebody has to look after the step.
SELECT 'lease expired: step ' || s.step_id || ' of run ' || m.run_id || ', held by ' || s.lease_owner || ' until '
  || s.lease_expires_at
FROM cassette_steps AS s
JOIN cassette_jobs AS j ON j.job_id = s.job_id
JOIN cassette_messages AS m ON m.message_id = j.message_id
WHERE s.status = 'LEASED' AND s.lease_expires_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
  AND (?1 IS NULL OR m.run_id = ?1)
ORDER BY s.rowid
