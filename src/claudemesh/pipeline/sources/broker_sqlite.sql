-- name: identity
-- Which store this is, and how often it came back from a backup.
SELECT
  (SELECT CAST(value AS TEXT) FROM broker_state WHERE name = 'store_id'),
  coalesce((SELECT CAST(value AS TEXT) FROM broker_state WHERE name = 'epoch'), '0')

-- name: position
-- How far the order of each mesh has come, and the journals, also if their last rows are gone.
SELECT
  (SELECT json_group_array(json_array(mesh_id, history_id)) FROM history_counter) AS history,
  json_array(json_array(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'delivery_event'), 0))) AS delivery_event,
  json_array(json_array(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'presence_event'), 0))) AS presence_event,
  json_array(json_array(coalesce((SELECT max(id) FROM tombstone), 0))) AS tombstone

-- name: client_message_dedupe
-- Accepted ids of some ranges of history.
SELECT t.sender_id, t.client_message_id, t.mesh_id, t.broker_message_id, t.request_fingerprint, t.first_seen_at,
  t.expires_at
FROM json_each(?1) AS r CROSS JOIN client_message_dedupe AS t
WHERE t.state = 'accepted' AND t.mesh_id = r.value ->> 0 AND t.history_id > r.value ->> 1
  AND t.history_id <= r.value ->> 2

-- name: topic_message
-- What was posted, without its words.
SELECT t.mesh_id, t.history_id, t.topic_id, t.priority, t.encoding, octet_length(t.body) AS body_bytes
FROM json_each(?1) AS r CROSS JOIN topic_message AS t
WHERE t.mesh_id = r.value ->> 0 AND t.history_id > r.value ->> 1 AND t.history_id <= r.value ->> 2

-- name: message_queue
-- What was sent to a member or a queue, without its words.
SELECT t.mesh_id, t.history_id, t.recipient_id, t.queue_id, t.priority, t.encoding, octet_length(t.body) AS body_bytes
FROM json_each(?1) AS r CROSS JOIN message_queue AS t
WHERE t.mesh_id = r.value ->> 0 AND t.history_id > r.value ->> 1 AND t.history_id <= r.value ->> 2

-- name: body
-- The words.
SELECT t.mesh_id, t.history_id, t.encoding, t.body
FROM json_each(?1) AS r CROSS JOIN topic_message AS t
WHERE t.mesh_id = r.value ->> 0 AND t.history_id > r.value ->> 1 AND t.history_id <= r.value ->> 2
UNION ALL
SELECT t.mesh_id, t.history_id, t.encoding, t.body
FROM json_each(?1) AS r CROSS JOIN message_queue AS t
WHERE t.mesh_id = r.value ->> 0 AND t.history_id > r.value ->> 1 AND t.history_id <= r.value ->> 2

-- name: retired_id
-- Ids that were given up.
SELECT sender_id, client_message_id, mesh_id, first_seen_at, expires_at
FROM client_message_dedupe WHERE state = 'retired'
ORDER BY 1, 2

-- name: history_counter
-- As far as history is copied, and not as far as it has come since.
SELECT r.value ->> 0 AS mesh_id, r.value ->> 1 AS history_id FROM json_each(?1, '$.history') AS r
ORDER BY 1, 2

-- name: history_jump
-- Numbers that were passed over, as far as history is copied.
SELECT j.mesh_id, j.after_history_id, j.skipped, j.epoch
FROM json_each(?1, '$.history') AS r JOIN history_jump AS j ON j.mesh_id = r.value ->> 0 AND j.after_history_id < r.value ->> 1
ORDER BY 1, 2

-- name: counts
-- The store's own count of what is copied and not deleted, and of what became of deliveries.
WITH deliveries AS (
  SELECT t.state, count(*) AS rows
  FROM json_each(?1, '$.history') AS r CROSS JOIN delivery_queue AS t
  WHERE t.mesh_id = r.value ->> 0 AND t.history_id <= r.value ->> 2
  GROUP BY t.state
)
SELECT 'client_message_dedupe', count(*)
FROM json_each(?1, '$.history') AS r CROSS JOIN client_message_dedupe AS t
WHERE t.state = 'accepted' AND t.mesh_id = r.value ->> 0 AND t.history_id <= r.value ->> 2
UNION ALL
SELECT 'message_history', count(*)
FROM json_each(?1, '$.history') AS r CROSS JOIN message_history AS t
WHERE t.mesh_id = r.value ->> 0 AND t.history_id <= r.value ->> 2
UNION ALL
SELECT 'topic_message', count(*)
FROM json_each(?1, '$.history') AS r CROSS JOIN topic_message AS t
WHERE t.mesh_id = r.value ->> 0 AND t.history_id <= r.value ->> 2
UNION ALL
SELECT 'message_queue', count(*)
FROM json_each(?1, '$.history') AS r CROSS JOIN message_queue AS t
WHERE t.mesh_id = r.value ->> 0 AND t.history_id <= r.value ->> 2
UNION ALL
SELECT 'mention_index', count(*)
FROM json_each(?1, '$.history') AS r CROSS JOIN mention_index AS t
WHERE t.mesh_id = r.value ->> 0 AND t.history_id <= r.value ->> 2
UNION ALL
SELECT 'queue_lease', count(*)
FROM json_each(?1, '$.history') AS r CROSS JOIN queue_lease AS t
WHERE t.mesh_id = r.value ->> 0 AND t.history_id <= r.value ->> 2
UNION ALL
SELECT 'delivery_queue', coalesce(sum(rows), 0) FROM deliveries
UNION ALL
SELECT 'delivery.' || state, rows FROM deliveries
