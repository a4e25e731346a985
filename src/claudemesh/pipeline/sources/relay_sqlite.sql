-- name: identity
-- Which file this is.
SELECT value FROM remembered WHERE name = 'epoch'

-- name: position
-- How far it has come; rows are never deleted.
SELECT
  json_array(json_array(coalesce((SELECT max(seq) FROM outbox), 0))) AS outbox,
  json_array(json_array(coalesce((SELECT max(seq) FROM envelope_event), 0))) AS envelope_event

-- name: open
-- What may still change: what waits, and what waits for an operator.
SELECT seq FROM outbox WHERE status IN ('pending', 'inflight', 'conflict')
UNION ALL
SELECT seq FROM outbox WHERE status = 'dead'
ORDER BY 1

-- name: witness
-- The last envelope, and the last that happened. A file that came back from a backup uses its numbers again.
SELECT coalesce((SELECT id FROM outbox WHERE seq = ?1 ->> '$.outbox[0][0]'), '')
  || coalesce(
    (SELECT ' ' || envelope || ' ' || became || ' ' || at FROM envelope_event WHERE seq = ?1 ->> '$.envelope_event[0][0]'), ''
  )

-- name: outbox
-- Envelopes, without their bodies. Of what is sent nothing is known of one that was emptied since it was settled.
SELECT e.seq, e.id, e.client_message_id, e.sent ->> '$.key' AS key, e.request_fingerprint,
  substr(e.to_asked, 1, instr(e.to_asked, ' ') - 1) AS method,
  substr(e.to_asked, instr(e.to_asked, ' ') + 1) AS path,
  e.destination, e.route_class, e.is_status_write,
  e.sent ->> '$.if_match' AS if_match,
  e.sent ->> '$.body.expected_updated_at' AS expected_updated_at,
  e.sent ->> '$.body.expected_status' AS expected_status,
  e.sent ->> '$.source.agent' AS source_agent,
  e.sent ->> '$.source.host' AS source_host,
  octet_length(e.sent -> '$.body') AS body_bytes,
  e.enqueued_at, e.attempts, e.status, e.last_error, e.delivered_at, e.answer_status, e.aborted_at, e.aborted_by,
  e.superseded_by
FROM (
  SELECT t.*, CASE WHEN t.payload <> x'' THEN CAST(t.payload AS TEXT) END AS sent
  FROM json_each(?1) AS r CROSS JOIN outbox AS t WHERE t.seq > r.value ->> 0 AND t.seq <= r.value ->> 1
) AS e

-- name: envelope_body
-- What is sent, what stands there in a conflict, and what was answered.
SELECT t.seq, CASE WHEN t.payload <> x'' THEN CAST(t.payload AS TEXT) -> '$.body' END AS body,
  CAST(t.theirs AS TEXT) AS theirs, CAST(t.answer AS TEXT) AS answer
FROM json_each(?1) AS r CROSS JOIN outbox AS t WHERE t.seq > r.value ->> 0 AND t.seq <= r.value ->> 1

-- name: counts
-- The store's own count.
WITH states AS (SELECT status, count(*) AS rows FROM outbox GROUP BY status)
SELECT 'outbox', coalesce(sum(rows), 0) FROM states
UNION ALL
SELECT 'outbox.' || status, rows FROM states
UNION ALL
SELECT 'envelope_event', count(*) FROM envelope_event
UNION ALL
SELECT 'outage', count(*) FROM outage
