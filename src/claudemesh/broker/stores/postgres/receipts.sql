-- name: receipts
-- What is known of some messages, once for each recipient; also of those that are no longer kept. Of a queue's message
-- the recipient is whoever holds or held it, and one that is neither done nor leased any more is handed over.
SELECT d.client_message_id, d.broker_message_id, coalesce(d.history_id, h.history_id), d.history_available,
  d.first_seen_at, h.kind, coalesce(q.ref, topic.name), x.history_id IS NOT NULL,
  m.name, m.pubkey, x.state, x.delivered_at, x.read_at, x.acted_at, x.dead_at, x.dead_reason, x.attempts,
  x.state = 'delivered' AND coalesce(l.is_settled, false)
FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS asked (sender_id, client_message_id, place)
JOIN mesh.client_message_dedupe AS d
  ON d.sender_id = asked.sender_id AND d.client_message_id = asked.client_message_id COLLATE "C"
LEFT JOIN mesh.message_history AS h ON h.broker_message_id = d.broker_message_id
LEFT JOIN mesh.topic_message AS t ON t.mesh_id = h.mesh_id AND t.history_id = h.history_id
LEFT JOIN mesh.topic AS topic ON topic.id = t.topic_id
LEFT JOIN mesh.message_queue AS q ON q.mesh_id = h.mesh_id AND q.history_id = h.history_id
LEFT JOIN mesh.delivery AS x ON x.mesh_id = h.mesh_id AND x.history_id = h.history_id
LEFT JOIN mesh.queue_lease AS l
  ON x.recipient_id = 0 AND l.mesh_id = x.mesh_id AND l.history_id = x.history_id
LEFT JOIN mesh.member AS m ON m.id = CASE WHEN x.recipient_id = 0 THEN l.owner_id ELSE x.recipient_id END
WHERE d.state = 'accepted'
ORDER BY asked.place, x.recipient_id

-- name: own
-- Messages of this sender by the broker's ids.
SELECT h.client_message_id
FROM unnest($2::text[]) AS wanted (broker_message_id)
JOIN mesh.message_history AS h ON h.broker_message_id = wanted.broker_message_id COLLATE "C"
WHERE h.sender_id = $1

-- name: shared
-- A message that this member sent, received, or may lease.
SELECT h.sender_id, h.client_message_id
FROM mesh.message_history AS h
WHERE h.broker_message_id = $2 AND h.mesh_id = $3 AND (
  h.sender_id = $1 OR h.kind = 'queue' OR EXISTS (
    SELECT 1 FROM mesh.delivery_queue AS d
    WHERE d.mesh_id = h.mesh_id AND d.history_id = h.history_id AND d.recipient_id = $1
  )
)

-- name: progress
-- How many recipients of a sender's own messages are how far, and since when.
SELECT d.client_message_id, d.broker_message_id, d.first_seen_at, x.state, count(*),
  max(x.delivered_at), max(x.read_at), max(x.acted_at), max(x.dead_at)
FROM unnest($2::text[]) AS wanted (client_message_id)
JOIN mesh.client_message_dedupe AS d
  ON d.sender_id = $1 AND d.client_message_id = wanted.client_message_id COLLATE "C"
JOIN mesh.message_history AS h ON h.broker_message_id = d.broker_message_id
JOIN mesh.delivery AS x ON x.mesh_id = h.mesh_id AND x.history_id = h.history_id
GROUP BY d.sender_id, d.client_message_id, d.broker_message_id, d.first_seen_at, x.state
