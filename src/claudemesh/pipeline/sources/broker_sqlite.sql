-- name: identity
-- Which store this is, and how often it came back from a backup.
SELECT
  (SELECT CAST(value AS TEXT) FROM broker_state WHERE name = 'store_id'),
  coalesce((SELECT CAST(value AS TEXT) FROM broker_state WHERE name = 'epoch'), '0')

-- name: marks
-- How far the order of each mesh has come.
SELECT json_group_array(json_array(mesh_id, history_id)) FROM history_counter

-- name: journals
-- How far the journals have come, also if their last rows are gone.
SELECT
  coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'delivery_event'), 0),
  coalesce((SELECT max(id) FROM tombstone), 0)

-- name: client_message_dedupe
-- Accepted ids of some ranges of history.
SELECT t.sender_id, t.client_message_id, t.mesh_id, t.broker_message_id, t.request_fingerprint, t.first_seen_at,
  t.expires_at
FROM json_each(?1) AS r CROSS JOIN client_message_dedupe AS t
WHERE t.state = 'accepted' AND t.mesh_id = r.value ->> 0 AND t.history_id > r.value ->> 1
  AND t.history_id <= r.value ->> 2

-- name: message_history
-- The order of some ranges of history.
SELECT t.mesh_id, t.history_id, t.broker_message_id, t.sender_id, t.client_message_id, t.kind, t.accepted_at,
  t.sender_seq
FROM json_each(?1) AS r CROSS JOIN message_history AS t
WHERE t.mesh_id = r.value ->> 0 AND t.history_id > r.value ->> 1 AND t.history_id <= r.value ->> 2

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

-- name: delivery_queue
-- Who was to get it. What became of it is in the journal.
SELECT t.mesh_id, t.history_id, t.recipient_id
FROM json_each(?1) AS r CROSS JOIN delivery_queue AS t
WHERE t.mesh_id = r.value ->> 0 AND t.history_id > r.value ->> 1 AND t.history_id <= r.value ->> 2

-- name: mention_index
-- Who was named.
SELECT t.mesh_id, t.history_id, t.mentioned
FROM json_each(?1) AS r CROSS JOIN mention_index AS t
WHERE t.mesh_id = r.value ->> 0 AND t.history_id > r.value ->> 1 AND t.history_id <= r.value ->> 2

-- name: queue_lease
-- That a queue's message can be leased.
SELECT t.mesh_id, t.history_id, t.queue_id
FROM json_each(?1) AS r CROSS JOIN queue_lease AS t
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

-- name: delivery_event
-- What became of deliveries.
SELECT t.id, t.mesh_id, t.history_id, t.recipient_id, t.what, t.at, t.attempts, t.reason
FROM json_each(?1) AS r CROSS JOIN delivery_event AS t WHERE t.id > r.value ->> 0 AND t.id <= r.value ->> 1

-- name: tombstone
-- What was deleted.
SELECT t.id, t.what, t.mesh_id, t.sender_id, t.client_message_id, t.broker_message_id, t.history_id, t.deleted_at
FROM json_each(?1) AS r CROSS JOIN tombstone AS t WHERE t.id > r.value ->> 0 AND t.id <= r.value ->> 1

-- name: retired_id
-- Ids that were given up.
SELECT sender_id, client_message_id, mesh_id, first_seen_at, expires_at
FROM client_message_dedupe WHERE state = 'retired'
ORDER BY 1, 2

-- name: mesh
-- All meshes.
SELECT id, uid, slug, sends_per_window, created_at FROM mesh
ORDER BY 1, 2

-- name: member
-- All members, also those who are gone.
SELECT id, uid, mesh_id, name, pubkey, role, joined_at, revoked_at FROM member
ORDER BY 1, 2

-- name: topic
-- All topics.
SELECT id, mesh_id, name FROM topic
ORDER BY 1, 2

-- name: queue
-- All queues.
SELECT id, mesh_id, name FROM queue
ORDER BY 1, 2

-- name: history_counter
-- As far as history is copied, and not as far as it has come since.
SELECT r.value ->> 0 AS mesh_id, r.value ->> 1 AS history_id FROM json_each(?1) AS r
ORDER BY 1, 2

-- name: history_jump
-- Numbers that were passed over, as far as history is copied.
SELECT j.mesh_id, j.after_history_id, j.skipped, j.epoch
FROM json_each(?1) AS r JOIN history_jump AS j ON j.mesh_id = r.value ->> 0 AND j.after_history_id < r.value ->> 1
ORDER BY 1, 2

-- name: counts
-- The store's own count of what is copied and not deleted.
SELECT
  coalesce(sum((SELECT count(*) FROM client_message_dedupe AS t
    WHERE t.state = 'accepted' AND t.mesh_id = r.value ->> 0 AND t.history_id <= r.value ->> 1)), 0),
  coalesce(sum((SELECT count(*) FROM message_history AS t
    WHERE t.mesh_id = r.value ->> 0 AND t.history_id <= r.value ->> 1)), 0),
  coalesce(sum((SELECT count(*) FROM topic_message AS t
    WHERE t.mesh_id = r.value ->> 0 AND t.history_id <= r.value ->> 1)), 0),
  coalesce(sum((SELECT count(*) FROM message_queue AS t
    WHERE t.mesh_id = r.value ->> 0 AND t.history_id <= r.value ->> 1)), 0),
  coalesce(sum((SELECT count(*) FROM mention_index AS t
    WHERE t.mesh_id = r.value ->> 0 AND t.history_id <= r.value ->> 1)), 0),
  coalesce(sum((SELECT count(*) FROM queue_lease AS t
    WHERE t.mesh_id = r.value ->> 0 AND t.history_id <= r.value ->> 1)), 0)
FROM json_each(?1) AS r

-- name: states
-- And of what became of deliveries.
SELECT t.state, count(*)
FROM json_each(?1) AS r CROSS JOIN delivery_queue AS t
WHERE t.mesh_id = r.value ->> 0 AND t.history_id <= r.value ->> 1
GROUP BY t.state
