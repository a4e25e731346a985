-- name: lock
-- One at a time in the whole database: the schema itself may not be there yet.
SELECT pg_advisory_xact_lock($1)

-- name: patience
-- A migration may take longer than a statement of every day, and wait for the one before it.
SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $1, true)

-- name: enter
-- What follows is about this schema.
SELECT set_config('search_path', $1, true)

-- name: is_prepared
-- Asked first: whoever may not create a schema can still use one that is there.
SELECT to_regclass($1 || '.schema_migration') IS NOT NULL

-- name: render_create
-- The statement that makes it.
SELECT format('CREATE SCHEMA IF NOT EXISTS %I', $1::text)

-- name: create_record
-- Which migrations were applied.
CREATE TABLE schema_migration (
  version integer PRIMARY KEY,
  name text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT now()
)

-- name: versions
-- Those that were.
SELECT version FROM schema_migration ORDER BY version

-- name: note
-- One more was.
INSERT INTO schema_migration (version, name) VALUES ($1, $2)
