-- name: identity
-- Which file this is.
SELECT value FROM remembered WHERE name = 'epoch'

-- name: position
-- How far it has come; rows are never deleted.
SELECT json_array(json_array(coalesce(max(seq), 0))) AS outbox FROM outbox

-- name: open
-- What may still change.
SELECT seq FROM outbox WHERE status IN ('pending', 'inflight') UNION ALL SELECT seq FROM outbox WHERE status = 'dead'
ORDER BY seq

-- name: witness
-- The last row. A file that came back from a backup uses its numbers again.
SELECT id FROM outbox WHERE seq = ?1 ->> '$.outbox[0][0]'

-- name: counts
-- The store's own count.
WITH states AS (SELECT status, count(*) AS rows FROM outbox GROUP BY status)
SELECT 'outbox', coalesce(sum(rows), 0) FROM states
UNION ALL
SELECT 'outbox.' || status, rows FROM states
