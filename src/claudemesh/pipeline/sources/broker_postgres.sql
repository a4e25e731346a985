-- name: identity
-- Which store this is, how often it came back from a backup, and on which server it lives: transaction ids of another
-- one, or of another past of it, mean nothing.
SELECT
  (SELECT convert_from(value, 'UTF8') FROM mesh.broker_state WHERE name = 'store_id'),
  concat_ws('/', coalesce((SELECT convert_from(value, 'UTF8') FROM mesh.broker_state WHERE name = 'epoch'), '0'),
    (SELECT system_identifier FROM pg_control_system()), substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))

-- name: client_message_dedupe
-- Accepted ids.
SELECT t.sender_id, t.client_message_id, t.mesh_id, t.broker_message_id, t.request_fingerprint, t.first_seen_at,
  t.expires_at
FROM mesh.client_message_dedupe AS t WHERE t.state = 'accepted'

-- name: topic_message
-- What was posted, without its words.
SELECT t.mesh_id, t.history_id, t.topic_id, t.priority, t.encoding, octet_length(t.body)::bigint AS body_bytes
FROM mesh.topic_message AS t WHERE true

-- name: message_queue
-- What was sent to a member or a queue, without its words.
SELECT t.mesh_id, t.history_id, t.recipient_id, t.queue_id, t.priority, t.encoding, octet_length(t.body)::bigint AS body_bytes
FROM mesh.message_queue AS t WHERE true

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

-- name: counts
-- The store's own count, and of what became of deliveries.
WITH deliveries AS MATERIALIZED (SELECT state, count(*) AS rows FROM mesh.delivery GROUP BY state)
SELECT 'client_message_dedupe', count(*) FROM mesh.client_message_dedupe WHERE state = 'accepted'
UNION ALL
SELECT 'message_history', count(*) FROM mesh.message_history
UNION ALL
SELECT 'topic_message', count(*) FROM mesh.topic_message
UNION ALL
SELECT 'message_queue', count(*) FROM mesh.message_queue
UNION ALL
SELECT 'mention_index', count(*) FROM mesh.mention_index
UNION ALL
SELECT 'queue_lease', count(*) FROM mesh.queue_lease
UNION ALL
SELECT 'delivery_queue', coalesce(sum(rows), 0)::bigint FROM deliveries
UNION ALL
SELECT 'delivery.' || state, rows FROM deliveries
