-- name: identity
-- Which ledger this is. One that was begun before ledgers had a name goes by its first message.
SELECT coalesce(
  (SELECT value FROM cassette_meta WHERE key = 'ledger_id'),
  (SELECT substr(lower(hex('00000000' || message_id)), -16) FROM cassette_messages WHERE rowid = 1)
)

-- name: version
-- Which law the file is under. The first knows no requeue, no renewal and no chain.
SELECT value FROM cassette_meta WHERE key = 'db_version'

-- name: position
-- How far it has come; rows are never deleted.
SELECT
  json_array(json_array(coalesce((SELECT max(rowid) FROM cassette_messages), 0))) AS cassette_messages,
  json_array(json_array(coalesce((SELECT max(rowid) FROM cassette_jobs), 0))) AS cassette_jobs,
  json_array(json_array(coalesce((SELECT max(rowid) FROM cassette_steps), 0))) AS cassette_steps,
  json_array(json_array(coalesce((SELECT max(rowid) FROM cassette_receipts), 0))) AS cassette_receipts,
  json_array(json_array(coalesce((SELECT max(rowid) FROM cassette_requeues), 0))) AS cassette_requeues,
  json_array(json_array(coalesce((SELECT max(rowid) FROM cassette_renewals), 0))) AS cassette_renewals,
  json_array(json_array(coalesce((SELECT max(seq) FROM cassette_chain), 0))) AS cassette_chain

-- name: position_v1
-- The same, of what there is: the rest stands at its beginning, and is read from there after an upgrade.
SELECT
  json_array(json_array(coalesce((SELECT max(rowid) FROM cassette_messages), 0))) AS cassette_messages,
  json_array(json_array(coalesce((SELECT max(rowid) FROM cassette_jobs), 0))) AS cassette_jobs,
  json_array(json_array(coalesce((SELECT max(rowid) FROM cassette_steps), 0))) AS cassette_steps,
  json_array(json_array(coalesce((SELECT max(rowid) FROM cassette_receipts), 0))) AS cassette_receipts,
  '[[0]]' AS cassette_requeues,
  '[[0]]' AS cassette_renewals,
  '[[0]]' AS cassette_chain

-- name: open
-- Steps that may still change.
SELECT rowid FROM cassette_steps WHERE status = 'PENDING'
UNION ALL
SELECT rowid FROM cassette_steps WHERE status = 'LEASED'
ORDER BY 1

-- name: witness
-- The last row of each table. A file that came back from a backup uses its numbers again.
SELECT coalesce((SELECT message_id FROM cassette_messages WHERE rowid = ?1 ->> '$.cassette_messages[0][0]'), '')
  || coalesce(' ' || (SELECT receipt_id FROM cassette_receipts WHERE rowid = ?1 ->> '$.cassette_receipts[0][0]'), '')
  || coalesce(' ' || (SELECT requeue_id FROM cassette_requeues WHERE rowid = ?1 ->> '$.cassette_requeues[0][0]'), '')
  || coalesce(' ' || (SELECT renewal_id FROM cassette_renewals WHERE rowid = ?1 ->> '$.cassette_renewals[0][0]'), '')
  || coalesce(' ' || (SELECT hash FROM cassette_chain WHERE seq = ?1 ->> '$.cassette_chain[0][0]'), '')

-- name: witness_v1
-- The same words for the same rows, so that an upgraded file is still the one that was copied.
SELECT coalesce((SELECT message_id FROM cassette_messages WHERE rowid = ?1 ->> '$.cassette_messages[0][0]'), '')
  || coalesce(' ' || (SELECT receipt_id FROM cassette_receipts WHERE rowid = ?1 ->> '$.cassette_receipts[0][0]'), '')

-- name: cassette_steps_v1
-- Steps, of whose claims only the last is known, and not when it was made.
SELECT t.rowid, t.step_id, t.job_id, t.ordinal, t.status, t.lease_owner, t.lease_expires_at, t.fencing_token,
  t.created_at, NULL AS claimed_at
FROM json_each(?1) AS r CROSS JOIN cassette_steps AS t WHERE t.rowid > r.value ->> 0 AND t.rowid <= r.value ->> 1

-- name: message_body
-- What was posted.
SELECT t.rowid, t.payload_json
FROM json_each(?1) AS r CROSS JOIN cassette_messages AS t WHERE t.rowid > r.value ->> 0 AND t.rowid <= r.value ->> 1

-- name: step_body
-- What is to be done.
SELECT t.rowid, t.payload_json
FROM json_each(?1) AS r CROSS JOIN cassette_steps AS t WHERE t.rowid > r.value ->> 0 AND t.rowid <= r.value ->> 1

-- name: receipt_body
-- What came of it.
SELECT t.rowid, t.receipt_json
FROM json_each(?1) AS r CROSS JOIN cassette_receipts AS t WHERE t.rowid > r.value ->> 0 AND t.rowid <= r.value ->> 1

-- name: counts
-- The ledger's own count.
WITH steps AS (SELECT status, count(*) AS rows FROM cassette_steps GROUP BY status),
  outcomes AS (SELECT outcome, count(*) AS rows FROM cassette_receipts GROUP BY outcome)
SELECT 'cassette_messages', count(*) FROM cassette_messages
UNION ALL
SELECT 'cassette_jobs', count(*) FROM cassette_jobs
UNION ALL
SELECT 'cassette_steps', coalesce(sum(rows), 0) FROM steps
UNION ALL
SELECT 'cassette_steps.' || status, rows FROM steps
UNION ALL
SELECT 'cassette_receipts', coalesce(sum(rows), 0) FROM outcomes
UNION ALL
SELECT 'cassette_receipts.' || outcome, rows FROM outcomes
UNION ALL
SELECT 'cassette_requeues', count(*) FROM cassette_requeues
UNION ALL
SELECT 'cassette_renewals', count(*) FROM cassette_renewals
UNION ALL
SELECT 'cassette_chain', count(*) FROM cassette_chain

-- name: counts_v1
-- The same, of what there is.
WITH steps AS (SELECT status, count(*) AS rows FROM cassette_steps GROUP BY status),
  outcomes AS (SELECT outcome, count(*) AS rows FROM cassette_receipts GROUP BY outcome)
SELECT 'cassette_messages', count(*) FROM cassette_messages
UNION ALL
SELECT 'cassette_jobs', count(*) FROM cassette_jobs
UNION ALL
SELECT 'cassette_steps', coalesce(sum(rows), 0) FROM steps
UNION ALL
SELECT 'cassette_steps.' || status, rows FROM steps
UNION ALL
SELECT 'cassette_receipts', coalesce(sum(rows), 0) FROM outcomes
UNION ALL
SELECT 'cassette_receipts.' || outcome, rows FROM outcomes
