-- name: row
-- One row as it stands.
SELECT kind, id, seq, revision, created_at, updated_at, fields FROM entity WHERE kind = ?1 AND id = ?2

-- name: last_seq
-- How far the journal has come.
SELECT coalesce(max(seq), 0) FROM hub_write

-- name: append
-- One line of the journal.
INSERT INTO hub_write (
  seq, at, kind, entity_id, base_revision, revision, method, path, idempotency_key, source_host, source_agent,
  expectation, fields, deleted
)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)

-- name: put
-- A row as it stands from now on; its place and its beginning stay.
INSERT INTO entity (kind, id, seq, revision, created_at, updated_at, fields)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (kind, id) DO UPDATE
SET revision = excluded.revision, updated_at = excluded.updated_at, fields = excluded.fields

-- name: remove
-- A row that does not stand any more; the journal keeps its life.
DELETE FROM entity WHERE kind = ?1 AND id = ?2

-- name: count
-- By how much the number of rows changes. Not with ON CONFLICT: the row that it would insert may be below zero.
INSERT OR REPLACE INTO hub_tally (kind, status, rows)
VALUES (?1, ?2, ?3 + coalesce((SELECT rows FROM hub_tally WHERE kind = ?1 AND status = ?2), 0))

-- name: page
-- Rows of a kind in the order in which they were made.
SELECT kind, id, seq, revision, created_at, updated_at, fields FROM entity
WHERE kind = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3

-- name: tallies
-- How many rows there are.
SELECT kind, status, rows FROM hub_tally WHERE rows > 0 ORDER BY kind, status

-- name: newest
-- The last writes.
SELECT seq, kind, entity_id, revision, at, deleted FROM hub_write ORDER BY seq DESC LIMIT ?1
