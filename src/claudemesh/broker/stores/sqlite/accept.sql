-- name: standing
-- What stands under some ids of one sender.
SELECT client_message_id, state, request_fingerprint, broker_message_id, history_id, history_available, first_seen_at
FROM client_message_dedupe
WHERE sender_id = ?1 AND client_message_id IN (SELECT value FROM json_each(?2))

-- name: find_member
-- The member that a key leads to: the key in force, a retired one, or one of a session, live or ended.
SELECT k.member_id, k.kind
FROM member_key AS k JOIN member AS m ON m.id = k.member_id
WHERE k.mesh_id = ?1 AND k.pubkey = ?2 AND m.revoked_at IS NULL

-- name: find_topic
-- A topic by its name.
SELECT id FROM topic WHERE mesh_id = ?1 AND name = ?2

-- name: find_queue
-- A queue by its name.
SELECT id FROM queue WHERE mesh_id = ?1 AND name = ?2

-- name: subscribers
-- Who gets what is posted now.
SELECT member_id FROM topic_subscription WHERE topic_id = ?1 AND ended_at IS NULL

-- name: last_history_id
-- Where the order of a mesh stands.
SELECT history_id FROM history_counter WHERE mesh_id = ?1

-- name: claim
-- Use the id. It is known to be free: the transaction has looked, and nobody else writes.
INSERT INTO client_message_dedupe (
  sender_id, client_message_id, mesh_id, state, request_fingerprint, broker_message_id, history_id,
  history_available, first_seen_at, expires_at
) VALUES (?1, ?2, ?3, 'accepted', ?4, ?5, ?6, 1, ?7, ?8)

-- name: write_history
-- The message's place in the order of its mesh.
INSERT INTO message_history (
  mesh_id, history_id, broker_message_id, sender_id, client_message_id, kind, accepted_at, sender_seq
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)

-- name: write_topic_message
-- What was posted to a topic.
INSERT INTO topic_message (mesh_id, history_id, topic_id, reply_to, priority, meta, encoding, body)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)

-- name: write_message
-- What was sent to a member or a queue.
INSERT INTO message_queue (
  mesh_id, history_id, recipient_id, queue_id, ref, to_session, reply_to, priority, meta, encoding, body
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)

-- name: fan_out
-- One delivery for each subscriber and message, in the order of the table; the sender is not one of them.
INSERT INTO delivery_queue (mesh_id, history_id, recipient_id)
SELECT ?1, posted.value, s.member_id
FROM json_each(?2) AS posted CROSS JOIN topic_subscription AS s
WHERE s.topic_id = ?3 AND s.ended_at IS NULL AND s.member_id <> ?4

-- name: write_delivery
-- The one delivery of a message to a member, or to a queue, where nobody is the recipient yet.
INSERT INTO delivery_queue (mesh_id, history_id, recipient_id) VALUES (?1, ?2, ?3)

-- name: open_posts
-- These wait for every subscriber: some history ids of one block.
INSERT INTO delivery_open (recipient_id, block, bits)
SELECT s.member_id, ?1, ?2 FROM topic_subscription AS s
WHERE s.topic_id = ?3 AND s.ended_at IS NULL AND s.member_id <> ?4
ON CONFLICT (recipient_id, block) DO UPDATE SET bits = bits | excluded.bits

-- name: open_deliveries
-- These wait for one member.
INSERT INTO delivery_open (recipient_id, block, bits) VALUES (?1, ?2, ?3)
ON CONFLICT (recipient_id, block) DO UPDATE SET bits = bits | excluded.bits

-- name: write_lease
-- A queue's message is ready to be leased.
INSERT INTO queue_lease (mesh_id, history_id, queue_id) VALUES (?1, ?2, ?3)

-- name: write_mention
-- Somebody is named in the message.
INSERT INTO mention_index (mesh_id, mentioned, history_id) VALUES (?1, ?2, ?3)

-- name: find_answered
-- The message that a reply refers to, if the replier was a recipient and this is the first reply. A queue's message is
-- answered only by who handed it over: whoever holds it has still to ack it, and all others have nothing to say of it.
-- Of one that retention gave up the lease is settled as well, and its holder did nothing.
SELECT h.history_id, d.recipient_id, h.sender_id, h.client_message_id
FROM message_history AS h
JOIN delivery_queue AS d ON d.mesh_id = h.mesh_id AND d.history_id = h.history_id
  AND d.recipient_id = CASE h.kind WHEN 'queue' THEN 0 ELSE ?3 END
WHERE h.broker_message_id = ?1 AND h.mesh_id = ?2 AND d.acted_at IS NULL
  AND (h.kind <> 'queue' OR (d.dead_at IS NULL AND EXISTS (
    SELECT 1 FROM queue_lease AS l
    WHERE l.mesh_id = h.mesh_id AND l.history_id = h.history_id AND l.owner_id = ?3 AND l.is_settled = 1
  )))

-- name: mark_acted
-- A reply of a recipient refers to the message: it was acted upon.
UPDATE delivery_queue SET acted_at = ?4 WHERE mesh_id = ?1 AND history_id = ?2 AND recipient_id = ?3

-- name: advance_history
-- Taken last: the order of the mesh now ends here.
UPDATE history_counter SET history_id = ?2 WHERE mesh_id = ?1

-- name: retire
-- Give the id up: whatever comes under it later is refused.
INSERT INTO client_message_dedupe (
  sender_id, client_message_id, mesh_id, state, history_available, first_seen_at, expires_at
) VALUES (?1, ?2, ?3, 'retired', 0, ?4, ?5)
