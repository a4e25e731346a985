-- name: lock
-- Rows as they stand, held until the commit; in an order that everybody takes them in.
SELECT kind, id, seq, revision, created_at, updated_at, fields FROM hub.entity
WHERE (kind, id) IN (SELECT * FROM unnest($1::text[], $2::text[]))
ORDER BY kind, id FOR UPDATE

-- name: row
-- One row as it stands.
SELECT kind, id, seq, revision, created_at, updated_at, fields FROM hub.entity WHERE kind = $1 AND id = $2

-- name: take
-- The next places in the journal; whoever else writes waits from here on.
UPDATE hub.hub_counter SET seq = seq + $1 RETURNING seq - $1

-- name: append
-- Lines of the journal.
INSERT INTO hub.hub_write (
  seq, at, kind, entity_id, base_revision, revision, method, path, idempotency_key, source_host, source_agent,
  expectation, fields, deleted
)
SELECT * FROM unnest(
  $1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::text[],
  $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::boolean[]
)

-- name: put
-- Rows as they stand from now on; their places and their beginnings stay.
INSERT INTO hub.entity (kind, id, seq, revision, created_at, updated_at, fields)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[])
ON CONFLICT (kind, id) DO UPDATE
SET revision = excluded.revision, updated_at = excluded.updated_at, fields = excluded.fields

-- name: remove
-- Rows that do not stand any more; the journal keeps their lives.
DELETE FROM hub.entity WHERE (kind, id) IN (SELECT * FROM unnest($1::text[], $2::text[]))

-- name: provide_tallies
-- A count for each kind and status that there is.
INSERT INTO hub.hub_tally (kind, status, rows)
SELECT kind, status, 0 FROM unnest($1::text[], $2::text[]) AS changed (kind, status)
ON CONFLICT (kind, status) DO NOTHING

-- name: count
-- By how much the number of rows changes.
UPDATE hub.hub_tally AS t SET rows = t.rows + changed.by
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS changed (kind, status, by)
WHERE t.kind = changed.kind AND t.status = changed.status

-- name: page
-- Rows of a kind in the order in which they were made.
SELECT kind, id, seq, revision, created_at, updated_at, fields FROM hub.entity
WHERE kind = $1 AND seq > $2 ORDER BY seq LIMIT $3

-- name: tallies
-- How many rows there are.
SELECT kind, status, rows FROM hub.hub_tally WHERE rows > 0 ORDER BY kind, status

-- name: newest
-- The last writes.
SELECT seq, kind, entity_id, revision, at, deleted FROM hub.hub_write ORDER BY seq DESC LIMIT $1
