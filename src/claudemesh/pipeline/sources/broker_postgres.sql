-- name: identity
-- Which store this is, how often it came back from a backup, and on which server it lives: transaction ids of another
-- one, or of another past of it, mean nothing.
SELECT
  (SELECT convert_from(value, 'UTF8') FROM mesh.broker_state WHERE name = 'store_id'),
  concat_ws('/', coalesce((SELECT convert_from(value, 'UTF8') FROM mesh.broker_state WHERE name = 'epoch'), '0'),
    (SELECT system_identifier FROM pg_control_system()), substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))

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
SELECT pg_relation_size('mesh.{table}') / current_setting('block_size')::bigint

-- name: client_message_dedupe
-- Accepted ids.
SELECT t.sender_id, t.client_message_id, t.mesh_id, t.broker_message_id, t.request_fingerprint, t.first_seen_at,
  t.expires_at
FROM mesh.client_message_dedupe AS t WHERE t.state = 'accepted'

-- name: message_history
-- The order of the meshes.
SELECT t.mesh_id, t.history_id, t.broker_message_id, t.sender_id, t.client_message_id, t.kind, t.accepted_at,
  t.sender_seq
FROM mesh.message_history AS t WHERE true

-- name: topic_message
-- What was posted, without its words.
SELECT t.mesh_id, t.history_id, t.topic_id, t.priority, t.encoding, octet_length(t.body)::bigint AS body_bytes
FROM mesh.topic_message AS t WHERE true

-- name: message_queue
-- What was sent to a member or a queue, without its words.
SELECT t.mesh_id, t.history_id, t.recipient_id, t.queue_id, t.priority, t.encoding, octet_length(t.body)::bigint AS body_bytes
FROM mesh.message_queue AS t WHERE true

-- name: delivery_queue
-- Who was to get it. What became of it is in the journal.
SELECT t.mesh_id, t.history_id, t.recipient_id FROM mesh.delivery_queue AS t WHERE true

-- name: mention_index
-- Who was named.
SELECT t.mesh_id, t.history_id, t.mentioned FROM mesh.mention_index AS t WHERE true

-- name: queue_lease
-- That a queue's message can be leased.
SELECT t.mesh_id, t.history_id, t.queue_id FROM mesh.queue_lease AS t WHERE true

-- name: delivery_event
-- What became of deliveries.
SELECT t.id, t.mesh_id, t.history_id, t.recipient_id, t.what, t.at, t.attempts::bigint, t.reason
FROM mesh.delivery_event AS t WHERE true

-- name: tombstone
-- What was deleted.
SELECT t.id, t.what, t.mesh_id, t.sender_id, t.client_message_id, t.broker_message_id, t.history_id, t.deleted_at
FROM mesh.tombstone AS t WHERE true

-- name: posted_body
-- The words of posts.
SELECT t.mesh_id, t.history_id, t.encoding, t.body FROM mesh.topic_message AS t WHERE true

-- name: sent_body
-- The words of what was sent to one.
SELECT t.mesh_id, t.history_id, t.encoding, t.body FROM mesh.message_queue AS t WHERE true

-- name: retired_id
-- Ids that were given up.
SELECT sender_id, client_message_id, mesh_id, first_seen_at, expires_at
FROM mesh.client_message_dedupe WHERE state = 'retired'
ORDER BY 1, 2

-- name: mesh
-- All meshes.
SELECT id, uid, slug, sends_per_window, created_at FROM mesh.mesh
ORDER BY 1, 2

-- name: member
-- All members, also those who are gone.
SELECT id, uid, mesh_id, name, pubkey, role, joined_at, revoked_at FROM mesh.member
ORDER BY 1, 2

-- name: topic
-- All topics.
SELECT id, mesh_id, name FROM mesh.topic
ORDER BY 1, 2

-- name: queue
-- All queues.
SELECT id, mesh_id, name FROM mesh.queue
ORDER BY 1, 2

-- name: history_counter
-- How far the order of each mesh has come.
SELECT mesh_id, history_id FROM mesh.history_counter
ORDER BY 1, 2

-- name: history_jump
-- Numbers that were passed over.
SELECT mesh_id, after_history_id, skipped, epoch FROM mesh.history_jump
ORDER BY 1, 2

-- name: counts
-- The store's own count.
SELECT
  (SELECT count(*) FROM mesh.client_message_dedupe WHERE state = 'accepted'),
  (SELECT count(*) FROM mesh.message_history),
  (SELECT count(*) FROM mesh.topic_message),
  (SELECT count(*) FROM mesh.message_queue),
  (SELECT count(*) FROM mesh.mention_index),
  (SELECT count(*) FROM mesh.queue_lease)

-- name: states
-- And of what became of deliveries.
SELECT state, count(*) FROM mesh.delivery GROUP BY state
