-- name: identity
-- Which store this is, and on which server it lives: transaction ids of another one, or of another past of it, mean
-- nothing.
SELECT
  (SELECT convert_from(value, 'UTF8') FROM hub.hub_state WHERE name = 'store_id'),
  concat_ws('/', (SELECT system_identifier FROM pg_control_system()), substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))

-- name: hub_write
-- Lines of the journal, without what people wrote.
SELECT t.seq, t.at, t.kind, t.entity_id, t.base_revision, t.revision, t.method, t.path, t.idempotency_key,
  t.source_host, t.source_agent,
  t.expectation::json ->> 'revisions' AS expected_revisions,
  (extract(epoch FROM (t.expectation::json ->> 'updated_at')::timestamptz) * 1000)::bigint AS expected_updated_at,
  t.expectation::json ->> 'status' AS expected_status,
  CASE WHEN t.kind IN ('decisions', 'tasks', 'workplans') THEN t.fields::json ->> 'status' END AS status,
  octet_length(t.fields)::bigint AS fields_bytes, t.deleted::int::bigint AS deleted
FROM hub.hub_write AS t WHERE true

-- name: write_body
-- What rows were after each write.
SELECT t.seq, t.fields FROM hub.hub_write AS t WHERE true

-- name: hub_state
-- What the hubs know of themselves.
SELECT name, convert_from(value, 'UTF8') AS value FROM hub.hub_state ORDER BY name

-- name: counts
-- The store's own count: of the journal, and of rows as they stand.
SELECT 'hub_write', count(*) FROM hub.hub_write
UNION ALL
SELECT 'rows.' || kind || '.' || status, rows FROM hub.hub_tally WHERE rows > 0
