-- name: tokens
-- Each claim raises the token by one, and each but the last was requeued.
SELECT 'step ' || s.step_id || ' has token ' || s.fencing_token || ', is ' || s.status || ', and was requeued '
  || count(q.requeue_id) || ' times'
FROM cassette_steps AS s LEFT JOIN cassette_requeues AS q ON q.step_id = s.step_id
GROUP BY s.step_id
HAVING s.fencing_token <> count(q.requeue_id) + CASE s.status WHEN 'PENDING' THEN 0 ELSE 1 END
  OR max(q.fencing_token) <> count(q.requeue_id)

-- name: renewals
-- A lease that was renewed ends when its last renewal says.
SELECT 'step ' || s.step_id || ' has a lease that is not the one last renewed' FROM cassette_steps AS s
WHERE s.status IN ('LEASED', 'COMMITTED') AND s.lease_expires_at <> (
  SELECT max(n.lease_expires_at) FROM cassette_renewals AS n
  WHERE n.step_id = s.step_id AND n.fencing_token = s.fencing_token AND n.worker_id = s.lease_owner
)

-- name: requeued_too_soon
-- A lease is requeued after its end.
SELECT 'requeue ' || requeue_id || ' was written before its lease ended' FROM cassette_requeues
WHERE created_at < lease_expires_at

-- name: requeued_not_as_renewed
-- And that is the end that its last renewal gave it.
SELECT 'requeue ' || q.requeue_id || ' is of a lease that is not the one last renewed' FROM cassette_requeues AS q
WHERE q.lease_expires_at <> (
  SELECT max(n.lease_expires_at) FROM cassette_renewals AS n
  WHERE n.step_id = q.step_id AND n.fencing_token = q.fencing_token AND n.worker_id = q.worker_id
)

-- name: renewed_by_another
-- Only the holder of a lease renews it.
SELECT 'renewal ' || n.renewal_id || ' is of another lease than its step''s' FROM cassette_renewals AS n
LEFT JOIN cassette_steps AS s ON s.step_id = n.step_id AND s.fencing_token = n.fencing_token
LEFT JOIN cassette_requeues AS q ON q.step_id = n.step_id AND q.fencing_token = n.fencing_token
WHERE coalesce(q.worker_id, s.lease_owner) IS NOT n.worker_id

-- name: order_of_steps
-- The order of claims is that of posting.
SELECT 'step ' || s.step_id || ' is not where its job and message are' FROM cassette_steps AS s
JOIN cassette_jobs AS j ON j.job_id = s.job_id
JOIN cassette_messages AS m ON m.message_id = j.message_id
WHERE s.run_id IS NOT m.run_id OR s.message_order IS NOT m.rowid OR s.job_ordinal IS NOT j.ordinal

-- name: holes_of_records
-- As in the other tables.
SELECT 'cassette_requeues has rows missing or out of order'
FROM (SELECT count(*) AS n, min(rowid) AS first, max(rowid) AS last FROM cassette_requeues) WHERE n > 0 AND (first <> 1 OR last <> n)
UNION ALL
SELECT 'cassette_renewals has rows missing or out of order'
FROM (SELECT count(*) AS n, min(rowid) AS first, max(rowid) AS last FROM cassette_renewals) WHERE n > 0 AND (first <> 1 OR last <> n)

-- name: orphans_of_records
-- As in the other tables.
SELECT 'requeue ' || requeue_id || ' belongs to no step' FROM cassette_requeues AS q
WHERE NOT EXISTS (SELECT 1 FROM cassette_steps AS s WHERE s.step_id = q.step_id)
UNION ALL
SELECT 'renewal ' || renewal_id || ' belongs to no step' FROM cassette_renewals AS n
WHERE NOT EXISTS (SELECT 1 FROM cassette_steps AS s WHERE s.step_id = n.step_id)

-- name: chained_twice
-- A row has one link.
SELECT 'chain: ' || kind || ' ' || row_id || ' is chained ' || count(*) || ' times' FROM cassette_chain
GROUP BY kind, row_id HAVING count(*) > 1

-- name: unchained
-- What is written by whoever knows the law has its link in the same transaction.
SELECT 'chain: message ' || message_id || ' was written outside of it' FROM cassette_messages AS m
WHERE m.message_id NOT IN (SELECT row_id FROM cassette_chain WHERE kind = 'message')
UNION ALL
SELECT 'chain: receipt ' || receipt_id || ' was written outside of it' FROM cassette_receipts AS r
WHERE r.receipt_id NOT IN (SELECT row_id FROM cassette_chain WHERE kind = 'receipt')
UNION ALL
SELECT 'chain: requeue ' || requeue_id || ' was written outside of it' FROM cassette_requeues AS q
WHERE q.requeue_id NOT IN (SELECT row_id FROM cassette_chain WHERE kind = 'requeue')
UNION ALL
SELECT 'chain: renewal ' || renewal_id || ' was written outside of it' FROM cassette_renewals AS n
WHERE n.renewal_id NOT IN (SELECT row_id FROM cassette_chain WHERE kind = 'renewal')
