-- name: identity
-- Which file this is.
SELECT value FROM remembered WHERE name = 'epoch'

-- name: last
-- How far it has come; rows are never deleted.
SELECT coalesce(max(seq), 0) FROM outbox

-- name: open
-- What may still change.
SELECT seq FROM outbox WHERE status IN ('pending', 'inflight') UNION ALL SELECT seq FROM outbox WHERE status = 'dead'
ORDER BY seq

-- name: outbox
-- Some ranges of rows, without what was sent.
SELECT t.seq, t.id, t.client_message_id, t.request_fingerprint, t.to_asked, t.destination, t.enqueued_at, t.attempts,
  t.status, t.last_error, t.delivered_at, t.broker_message_id, t.history_id, t.aborted_at, t.superseded_by
FROM json_each(?1) AS r CROSS JOIN outbox AS t WHERE t.seq > r.value ->> 0 AND t.seq <= r.value ->> 1

-- name: counts
-- The store's own count.
SELECT status, count(*) FROM outbox GROUP BY status
