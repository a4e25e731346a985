-- name: tables
-- What there is, in schemas that may be looked into.
SELECT n.nspname::text, c.relname::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname IN ('mesh', 'hub') AND has_schema_privilege(n.oid, 'USAGE')

-- name: moment
-- This moment, for others too.
SELECT pg_export_snapshot(), pg_current_snapshot()::text

-- name: lag
-- What is open and may still commit: until then nobody can read it.
SELECT count(*), CASE WHEN count(*) = count(since)
  THEN coalesce(max(extract(epoch FROM clock_timestamp() - since)), 0)::float8 END FROM (
  SELECT xact_start AS since FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND datname = current_database()
  UNION ALL
  SELECT prepared FROM pg_prepared_xacts WHERE database = current_database()
) AS open

-- name: new_rows
-- What one moment sees and an earlier one did not. Everything below the earlier one's horizon had ended then, so the
-- index is asked only from there on; a transaction that was open then, or beyond it, is judged by itself.
t.commit_xid >= pg_snapshot_xmin('{since}'::pg_snapshot)
AND NOT pg_visible_in_snapshot(t.commit_xid, '{since}'::pg_snapshot)
AND pg_visible_in_snapshot(t.commit_xid, '{upto}'::pg_snapshot)

-- name: blocks
-- How large a table is, in the blocks that it is read by.
SELECT pg_relation_size('{table}') / current_setting('block_size')::bigint
