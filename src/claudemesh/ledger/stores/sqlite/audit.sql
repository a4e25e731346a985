-- What must not be in a ledger, whatever way it came there. Each statement returns one row for each thing it finds:
-- a text that begins with what it is about. Triggers refuse all of it; whoever dropped one, or edited the file, did not ask.

-- name: pending_with_lease
-- A step that nobody holds has no lease.
SELECT 'step ' || step_id || ' is PENDING and has a lease' FROM cassette_steps
WHERE status = 'PENDING' AND (lease_owner IS NOT NULL OR lease_expires_at IS NOT NULL)

-- name: leased_without_lease
-- A step that was claimed says by whom, until when and under which token; so it does when it is committed.
SELECT 'step ' || step_id || ' is ' || status || ' without a whole lease' FROM cassette_steps
WHERE status IN ('LEASED', 'COMMITTED') AND (
  coalesce(lease_owner, '') = '' OR fencing_token < 1
  OR strftime('%Y-%m-%dT%H:%M:%fZ', lease_expires_at) IS NOT lease_expires_at OR lease_expires_at IS NULL
)

-- name: unknown_status
-- There are three.
SELECT 'step ' || step_id || ' has status ' || status FROM cassette_steps
WHERE status NOT IN ('PENDING', 'LEASED', 'COMMITTED')

-- name: unknown_words
-- Sources and outcomes are those of the law.
SELECT 'message ' || message_id || ' has source ' || source FROM cassette_messages
WHERE source NOT IN ('USER', 'PLANNER', 'SYSTEM', 'WORKER')
UNION ALL
SELECT 'receipt ' || receipt_id || ' has outcome ' || outcome FROM cassette_receipts
WHERE outcome NOT IN ('SUCCESS', 'FAILURE', 'ABORTED')

-- name: committed_without_receipt
-- What is committed has the receipt of the lease under which it was.
SELECT 'step ' || s.step_id || ' is COMMITTED without its receipt' FROM cassette_steps AS s
WHERE s.status = 'COMMITTED' AND NOT EXISTS (
  SELECT 1 FROM cassette_receipts AS r
  WHERE r.step_id = s.step_id AND r.job_id = s.job_id AND r.worker_id = s.lease_owner
    AND r.fencing_token = s.fencing_token
)

-- name: receipt_without_commit
-- And what has a receipt is committed.
SELECT 'receipt ' || r.receipt_id || ' is for a step that is not COMMITTED' FROM cassette_receipts AS r
WHERE NOT EXISTS (SELECT 1 FROM cassette_steps AS s WHERE s.step_id = r.step_id AND s.status = 'COMMITTED')

-- name: receipt_too_late
-- A receipt is written while its lease lasts.
SELECT 'receipt ' || r.receipt_id || ' was written after its lease ended' FROM cassette_receipts AS r
JOIN cassette_steps AS s ON s.step_id = r.step_id
WHERE r.created_at >= s.lease_expires_at

-- name: receipt_twice
-- Once.
SELECT 'step ' || step_id || ' has ' || count(*) || ' receipts' FROM cassette_receipts
GROUP BY step_id HAVING count(*) > 1

-- name: orphans
-- Every row has its parent, also where foreign keys were off.
SELECT 'job ' || job_id || ' belongs to no message' FROM cassette_jobs AS j
WHERE NOT EXISTS (SELECT 1 FROM cassette_messages AS m WHERE m.message_id = j.message_id)
UNION ALL
SELECT 'step ' || step_id || ' belongs to no job' FROM cassette_steps AS s
WHERE NOT EXISTS (SELECT 1 FROM cassette_jobs AS j WHERE j.job_id = s.job_id)
UNION ALL
SELECT 'receipt ' || receipt_id || ' belongs to no step of its job' FROM cassette_receipts AS r
WHERE NOT EXISTS (SELECT 1 FROM cassette_steps AS s WHERE s.step_id = r.step_id AND s.job_id = r.job_id)

-- name: holes
-- Rows are numbered 1, 2, 3 and so on: one that is missing was deleted, and its hole stays.
SELECT 'cassette_messages has rows missing or out of order'
FROM (SELECT count(*) AS n, min(rowid) AS first, max(rowid) AS last FROM cassette_messages) WHERE n > 0 AND (first <> 1 OR last <> n)
UNION ALL
SELECT 'cassette_jobs has rows missing or out of order'
FROM (SELECT count(*) AS n, min(rowid) AS first, max(rowid) AS last FROM cassette_jobs) WHERE n > 0 AND (first <> 1 OR last <> n)
UNION ALL
SELECT 'cassette_steps has rows missing or out of order'
FROM (SELECT count(*) AS n, min(rowid) AS first, max(rowid) AS last FROM cassette_steps) WHERE n > 0 AND (first <> 1 OR last <> n)
UNION ALL
SELECT 'cassette_receipts has rows missing or out of order'
FROM (SELECT count(*) AS n, min(rowid) AS first, max(rowid) AS last FROM cassette_receipts) WHERE n > 0 AND (first <> 1 OR last <> n)
