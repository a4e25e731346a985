-- name: open_blocks
-- What waits for a member, in order. A block that stands holds at least one.
SELECT block, bits FROM delivery_open WHERE recipient_id = ?1 AND block >= ?2 ORDER BY block LIMIT ?3

-- name: messages
-- Stored messages with all that a recipient is told. CROSS JOIN keeps the order of the loops: the few that are wanted
-- first, and not the whole history of the mesh.
SELECT
  h.history_id, h.sender_id, h.broker_message_id, h.client_message_id, s.uid, s.pubkey, s.name, h.kind,
  coalesce(q.ref, topic.name), coalesce(q.body, t.body), h.accepted_at, coalesce(q.reply_to, t.reply_to),
  coalesce(q.priority, t.priority), coalesce(q.meta, t.meta), coalesce(q.encoding, t.encoding), q.to_session
FROM json_each(?2) AS wanted
CROSS JOIN message_history AS h ON h.mesh_id = ?1 AND h.history_id = wanted.value
CROSS JOIN member AS s ON s.id = h.sender_id
LEFT JOIN topic_message AS t ON t.mesh_id = ?1 AND t.history_id = h.history_id
LEFT JOIN topic ON topic.id = t.topic_id
LEFT JOIN message_queue AS q ON q.mesh_id = ?1 AND q.history_id = h.history_id

-- name: ack
-- The inbox holds it. That is evidence, also after it was given up.
UPDATE delivery_queue SET delivered_at = ?4, dead_at = NULL, dead_reason = NULL
WHERE mesh_id = ?1 AND history_id = ?2 AND recipient_id = ?3 AND delivered_at IS NULL

-- name: count_attempts
-- The socket lived on without an ack.
UPDATE delivery_queue SET attempts = attempts + 1
WHERE mesh_id = ?1 AND history_id = ?2 AND recipient_id = ?3 AND delivered_at IS NULL AND dead_at IS NULL
RETURNING attempts

-- name: give_up
-- Too many attempts: nobody waits for it any more.
UPDATE delivery_queue SET dead_at = ?4, dead_reason = 'attempts_exhausted'
WHERE mesh_id = ?1 AND history_id = ?2 AND recipient_id = ?3 AND delivered_at IS NULL AND dead_at IS NULL

-- name: close
-- These wait no more.
UPDATE delivery_open SET bits = bits & ~?3 WHERE recipient_id = ?1 AND block = ?2

-- name: forget_block
-- Nothing of it waits.
DELETE FROM delivery_open WHERE recipient_id = ?1 AND block = ?2 AND bits = 0

-- name: mark_read
-- The reader's explicit mark; the first one counts.
UPDATE delivery_queue SET read_at = coalesce(read_at, ?4)
WHERE mesh_id = ?1 AND history_id = ?2 AND recipient_id = ?3

-- name: find_message
-- Whose message this is, and where it stands.
SELECT history_id, sender_id, client_message_id FROM message_history WHERE broker_message_id = ?1 AND mesh_id = ?2

-- name: all_open
-- All that waits, of all members.
SELECT bits FROM delivery_open

-- name: note_reading
-- The member marked something as read.
UPDATE member SET last_read_at = max(coalesce(last_read_at, 0), ?2) WHERE id = ?1

-- name: readers
-- The members of a mesh, how much each has not marked as read (counted up to a bound), and when it last did.
SELECT m.id, (
  SELECT count(*) FROM (
    SELECT 1 FROM delivery_queue AS d
    WHERE d.recipient_id = m.id AND d.delivered_at IS NOT NULL AND d.read_at IS NULL AND d.acted_at IS NULL
      AND d.dead_at IS NULL
    LIMIT ?2
  )
), m.last_read_at
FROM member AS m WHERE m.mesh_id = ?1 AND m.revoked_at IS NULL

-- name: open_of_mesh
-- What waits for the members of a mesh.
SELECT o.recipient_id, o.bits FROM member AS m JOIN delivery_open AS o ON o.recipient_id = m.id WHERE m.mesh_id = ?1

-- name: delivered
-- What a member's inbox has acknowledged, for one that lost it.
SELECT history_id FROM delivery_queue
WHERE mesh_id = ?1 AND recipient_id = ?2 AND history_id > ?3 AND delivered_at IS NOT NULL
ORDER BY history_id LIMIT ?4
