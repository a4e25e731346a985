-- name: own_by_client_id
-- A message of this sender by the id that the sender chose; also when it is no longer kept.
SELECT d.client_message_id, d.broker_message_id, d.history_id, d.history_available, d.first_seen_at
FROM client_message_dedupe AS d
WHERE d.sender_id = ?1 AND d.state = 'accepted' AND d.client_message_id IN (SELECT value FROM json_each(?2))

-- name: own_by_broker_id
-- A message of this sender by the broker's id.
SELECT h.client_message_id, h.broker_message_id, h.history_id, 1, h.accepted_at
FROM json_each(?2) AS wanted CROSS JOIN message_history AS h ON h.broker_message_id = wanted.value
WHERE h.sender_id = ?1

-- name: progress
-- How many recipients of a sender's own messages are how far, and since when.
SELECT d.client_message_id, d.broker_message_id, d.first_seen_at, x.state, count(*),
  max(x.delivered_at), max(x.read_at), max(x.acted_at), max(x.dead_at)
FROM json_each(?2) AS wanted
CROSS JOIN client_message_dedupe AS d ON d.sender_id = ?1 AND d.client_message_id = wanted.value
CROSS JOIN delivery_queue AS x ON x.mesh_id = d.mesh_id AND x.history_id = d.history_id
GROUP BY wanted.key, x.state

-- name: shared_by_broker_id
-- A message that this member sent, received, or may lease.
SELECT h.client_message_id, h.broker_message_id, h.history_id, 1, h.accepted_at
FROM message_history AS h
WHERE h.broker_message_id = ?2 AND h.mesh_id = ?3 AND (
  h.sender_id = ?1 OR h.kind = 'queue' OR EXISTS (
    SELECT 1 FROM delivery_queue AS d
    WHERE d.mesh_id = h.mesh_id AND d.history_id = h.history_id AND d.recipient_id = ?1
  )
)

-- name: destination
-- Where a message went.
SELECT h.kind, coalesce(q.ref, topic.name)
FROM message_history AS h
LEFT JOIN topic_message AS t ON t.mesh_id = h.mesh_id AND t.history_id = h.history_id
LEFT JOIN topic ON topic.id = t.topic_id
LEFT JOIN message_queue AS q ON q.mesh_id = h.mesh_id AND q.history_id = h.history_id
WHERE h.mesh_id = ?1 AND h.history_id = ?2

-- name: recipients
-- How far it came at each; of a queue's message the recipient is whoever holds or held it, and one that is neither done
-- nor leased any more is handed over.
SELECT m.name, m.pubkey, d.state, d.delivered_at, d.read_at, d.acted_at, d.dead_at, d.dead_reason, d.attempts,
  d.state = 'delivered' AND coalesce(l.is_settled, 0)
FROM delivery_queue AS d
LEFT JOIN queue_lease AS l ON d.recipient_id = 0 AND l.mesh_id = d.mesh_id AND l.history_id = d.history_id
LEFT JOIN member AS m ON m.id = CASE WHEN d.recipient_id = 0 THEN l.owner_id ELSE d.recipient_id END
WHERE d.mesh_id = ?1 AND d.history_id = ?2
ORDER BY d.recipient_id
