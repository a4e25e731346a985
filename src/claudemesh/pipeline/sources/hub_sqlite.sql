-- name: identity
-- Which store this is.
SELECT CAST(value AS TEXT) FROM hub_state WHERE name = 'store_id'

-- name: position
-- How far the journal has come; lines are never deleted.
SELECT json_array(json_array(coalesce(max(seq), 0))) AS hub_write FROM hub_write

-- name: witness
-- The last line. A file that came back from a backup uses its numbers again.
SELECT at || ' ' || kind || ' ' || entity_id || ' ' || revision FROM hub_write WHERE seq = ?1 ->> '$.hub_write[0][0]'

-- name: hub_write
-- Lines of the journal, without what people wrote.
SELECT t.seq, t.at, t.kind, t.entity_id, t.base_revision, t.revision, t.method, t.path, t.idempotency_key,
  t.source_host, t.source_agent,
  t.expectation ->> '$.revisions' AS expected_revisions,
  CAST(round(unixepoch(t.expectation ->> '$.updated_at', 'subsec') * 1000) AS INTEGER) AS expected_updated_at,
  t.expectation ->> '$.status' AS expected_status,
  CASE WHEN t.kind IN ('decisions', 'tasks', 'workplans') THEN t.fields ->> '$.status' END AS status,
  octet_length(t.fields) AS fields_bytes, t.deleted
FROM json_each(?1) AS r CROSS JOIN hub_write AS t WHERE t.seq > r.value ->> 0 AND t.seq <= r.value ->> 1

-- name: write_body
-- What rows were after each write.
SELECT t.seq, t.fields
FROM json_each(?1) AS r CROSS JOIN hub_write AS t WHERE t.seq > r.value ->> 0 AND t.seq <= r.value ->> 1

-- name: hub_state
-- What the hub knows of itself.
SELECT name, CAST(value AS TEXT) AS value FROM hub_state ORDER BY name

-- name: counts
-- The store's own count: of the journal, and of rows as they stand.
SELECT 'hub_write', count(*) FROM hub_write
UNION ALL
SELECT 'rows.' || kind || '.' || status, rows FROM hub_tally WHERE rows > 0
