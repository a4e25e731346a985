-- name: claim
-- Use the ids, in the order of their keys: of two transactions with the same ids one waits for the other, and never
-- each for each. Those that were used before are not returned.
INSERT INTO mesh.client_message_dedupe (
  sender_id, client_message_id, mesh_id, state, request_fingerprint, broker_message_id, history_available,
  first_seen_at, expires_at
)
SELECT o.sender_id, o.client_message_id, o.mesh_id, 'accepted', o.fingerprint, o.broker_message_id, true, o.now_ms,
  o.expires_at
FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bytea[], $5::text[], $6::bigint[], $7::bigint[])
  AS o (sender_id, client_message_id, mesh_id, fingerprint, broker_message_id, now_ms, expires_at)
ORDER BY o.sender_id, o.client_message_id COLLATE "C"
ON CONFLICT DO NOTHING
RETURNING broker_message_id

-- name: standing
-- What stands under some ids. While the message is kept, its history row knows its number.
SELECT d.sender_id, d.client_message_id, d.state, d.request_fingerprint, d.broker_message_id,
  coalesce(d.history_id, h.history_id), d.history_available, d.first_seen_at
FROM unnest($1::bigint[], $2::text[]) AS asked (sender_id, client_message_id)
JOIN mesh.client_message_dedupe AS d
  ON d.sender_id = asked.sender_id AND d.client_message_id = asked.client_message_id COLLATE "C"
LEFT JOIN mesh.message_history AS h ON h.broker_message_id = d.broker_message_id

-- name: lock_counters
-- Taken last, and held until the commit. What is read from here on still holds then.
SELECT mesh_id, history_id FROM mesh.history_counter WHERE mesh_id = ANY($1::bigint[]) ORDER BY mesh_id
FOR NO KEY UPDATE

-- name: resolve
-- Which senders are in force, and where messages go: for a topic with all who are subscribed.
SELECT 'sender' AS what, m.mesh_id, '' AS ref, m.id, NULL AS to_session, NULL::bigint[] AS subscribers
FROM mesh.member AS m WHERE m.id = ANY($1::bigint[]) AND m.revoked_at IS NULL
UNION ALL
SELECT 'dm', k.mesh_id, k.pubkey, k.member_id, CASE k.kind WHEN 'session' THEN k.pubkey END, NULL
FROM unnest($2::bigint[], $3::text[]) AS w (mesh_id, ref)
JOIN mesh.member_key AS k ON k.mesh_id = w.mesh_id AND k.pubkey = w.ref COLLATE "C"
JOIN mesh.member AS m ON m.id = k.member_id AND m.revoked_at IS NULL
UNION ALL
SELECT 'topic', t.mesh_id, t.name, t.id, NULL, ARRAY(
  SELECT s.member_id FROM mesh.topic_subscription AS s WHERE s.topic_id = t.id AND s.ended_at IS NULL
)
FROM unnest($4::bigint[], $5::text[]) AS w (mesh_id, ref)
JOIN mesh.topic AS t ON t.mesh_id = w.mesh_id AND t.name = w.ref COLLATE "C"
UNION ALL
SELECT 'queue', q.mesh_id, q.name, q.id, NULL, NULL
FROM unnest($6::bigint[], $7::text[]) AS w (mesh_id, ref)
JOIN mesh.queue AS q ON q.mesh_id = w.mesh_id AND q.name = w.ref COLLATE "C"

-- name: release
-- Ids that were claimed, and whose messages were refused then: they are free again.
DELETE FROM mesh.client_message_dedupe AS d
USING unnest($1::bigint[], $2::text[]) AS o (sender_id, client_message_id)
WHERE d.sender_id = o.sender_id AND d.client_message_id = o.client_message_id COLLATE "C"

-- name: write
-- Everything else that these messages are, in one statement; the counter of each mesh moves to its last one.
WITH o AS MATERIALIZED (
  SELECT * FROM unnest(
    $1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::bigint[],
    $9::bigint[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[]
  ) AS o (
    mesh_id, history_id, broker_message_id, sender_id, client_message_id, kind, accepted_at, sender_seq,
    destination_id, ref, to_session, reply_to, priority, meta, encoding, body
  )
), history AS (
  INSERT INTO mesh.message_history (
    mesh_id, history_id, broker_message_id, sender_id, client_message_id, kind, accepted_at, sender_seq
  )
  SELECT mesh_id, history_id, broker_message_id, sender_id, client_message_id, kind, accepted_at, sender_seq FROM o
), posts AS (
  INSERT INTO mesh.topic_message (mesh_id, history_id, topic_id, reply_to, priority, meta, encoding, body)
  SELECT mesh_id, history_id, destination_id, reply_to, priority, meta, encoding, body FROM o WHERE kind = 'topic'
), messages AS (
  INSERT INTO mesh.message_queue (
    mesh_id, history_id, recipient_id, queue_id, ref, to_session, reply_to, priority, meta, encoding, body
  )
  SELECT mesh_id, history_id, CASE kind WHEN 'dm' THEN destination_id END,
    CASE kind WHEN 'queue' THEN destination_id END, ref, to_session, reply_to, priority, meta, encoding, body
  FROM o WHERE kind <> 'topic'
), leases AS (
  INSERT INTO mesh.queue_lease (mesh_id, history_id, queue_id)
  SELECT mesh_id, history_id, destination_id FROM o WHERE kind = 'queue'
), deliveries AS (
  INSERT INTO mesh.delivery_queue (mesh_id, history_id, recipient_id, to_session)
  SELECT mesh_id, history_id, CASE kind WHEN 'dm' THEN destination_id ELSE 0 END, to_session
  FROM o WHERE kind <> 'topic'
  UNION ALL
  SELECT o.mesh_id, o.history_id, s.member_id, NULL
  FROM o JOIN mesh.topic_subscription AS s ON s.topic_id = o.destination_id
  WHERE o.kind = 'topic' AND s.ended_at IS NULL AND s.member_id <> o.sender_id
)
UPDATE mesh.history_counter AS c SET history_id = last.history_id
FROM (SELECT mesh_id, max(history_id) AS history_id FROM o GROUP BY mesh_id) AS last
WHERE c.mesh_id = last.mesh_id

-- name: write_mentions
-- Who is named in which message.
INSERT INTO mesh.mention_index (mesh_id, history_id, mentioned)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[])

-- name: mark_acted
-- Replies of recipients refer to these messages: they were acted upon. The first reply counts. A queue's message is
-- answered only by who handed it over: whoever holds it has still to ack it, and all others have nothing to say of it.
-- Of one that retention gave up the lease is settled as well, and its holder did nothing. Rows are locked in their order,
-- as everywhere.
WITH replied AS MATERIALIZED (
  SELECT d.mesh_id, d.history_id, d.recipient_id, r.now_ms, r.place, h.sender_id, h.client_message_id
  FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) WITH ORDINALITY
    AS r (reply_to, mesh_id, sender_id, now_ms, place)
  JOIN mesh.message_history AS h ON h.broker_message_id = r.reply_to COLLATE "C" AND h.mesh_id = r.mesh_id
  JOIN mesh.delivery_queue AS d
    ON d.mesh_id = h.mesh_id AND d.history_id = h.history_id
    AND d.recipient_id = CASE h.kind WHEN 'queue' THEN 0 ELSE r.sender_id END
  LEFT JOIN mesh.queue_lease AS l
    ON h.kind = 'queue' AND l.mesh_id = h.mesh_id AND l.history_id = h.history_id
  WHERE d.acted_at IS NULL
    AND (h.kind <> 'queue' OR (d.dead_at IS NULL AND l.owner_id = r.sender_id AND l.is_settled))
  ORDER BY d.mesh_id, d.history_id, d.recipient_id
  FOR NO KEY UPDATE OF d
), marked AS (
  UPDATE mesh.delivery_queue AS d SET acted_at = r.now_ms FROM replied AS r
  WHERE d.mesh_id = r.mesh_id AND d.history_id = r.history_id AND d.recipient_id = r.recipient_id
)
SELECT place, sender_id, client_message_id FROM replied

-- name: retire
-- Give the id up: whatever comes under it later is refused. Nothing is returned if it was used before.
INSERT INTO mesh.client_message_dedupe (
  sender_id, client_message_id, mesh_id, state, history_available, first_seen_at, expires_at
) VALUES ($1, $2, $3, 'retired', false, $4, $5)
ON CONFLICT DO NOTHING
RETURNING true
