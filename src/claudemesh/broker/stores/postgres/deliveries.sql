-- name: open
-- What waits for a seat's member, in order, and whether it is the seat's: nothing unless the seat is the newest of its
-- key. A session gets what names it, the member's own all but what names a session that is there and gets it itself,
-- if not now then on its return.
SELECT d.history_id, CASE $2::text
    WHEN '' THEN d.to_session IS NULL OR d.to_session <> ALL (ARRAY(
      SELECT session_pubkey FROM mesh.presence
      WHERE member_id = $1 AND disconnected_at IS NULL AND NOT presence_only
    ))
    ELSE d.to_session IS NOT NULL AND d.to_session = $2 COLLATE "C"
  END
FROM mesh.delivery_queue AS d
WHERE d.recipient_id = $1 AND d.history_id > $4 AND d.delivered_at IS NULL AND d.dead_at IS NULL
  AND $3::bigint = (
    SELECT max(token) FROM mesh.seat WHERE member_id = $1 AND session_pubkey = $2 COLLATE "C" AND NOT presence_only
  )
ORDER BY d.history_id LIMIT $5

-- name: messages
-- Stored messages with all that a recipient is told.
SELECT
  h.history_id, h.sender_id, h.broker_message_id, h.client_message_id, s.uid, s.pubkey, s.name, h.kind,
  coalesce(q.ref, topic.name), coalesce(q.body, t.body), h.accepted_at, coalesce(q.reply_to, t.reply_to),
  coalesce(q.priority, t.priority), coalesce(q.meta, t.meta), coalesce(q.encoding, t.encoding), q.to_session
FROM unnest($2::bigint[]) AS wanted (history_id)
JOIN mesh.message_history AS h ON h.mesh_id = $1 AND h.history_id = wanted.history_id
JOIN mesh.member AS s ON s.id = h.sender_id
LEFT JOIN mesh.topic_message AS t ON t.mesh_id = $1 AND t.history_id = wanted.history_id
LEFT JOIN mesh.topic AS topic ON topic.id = t.topic_id
LEFT JOIN mesh.message_queue AS q ON q.mesh_id = $1 AND q.history_id = wanted.history_id

-- name: delivered
-- What a member's inbox has acknowledged, for one that lost it.
SELECT history_id FROM mesh.delivery_queue
WHERE mesh_id = $1 AND recipient_id = $2 AND history_id > $3 AND delivered_at IS NOT NULL
ORDER BY history_id LIMIT $4

-- name: ack
-- Inboxes hold these. That is evidence, also after it was given up. Rows are locked in their order, as everywhere.
WITH due AS MATERIALIZED (
  SELECT d.mesh_id, d.history_id, d.recipient_id, a.now_ms
  FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) AS a (mesh_id, history_id, recipient_id, now_ms)
  JOIN mesh.delivery_queue AS d
    ON d.mesh_id = a.mesh_id AND d.history_id = a.history_id AND d.recipient_id = a.recipient_id
  WHERE d.delivered_at IS NULL
  ORDER BY d.mesh_id, d.history_id, d.recipient_id
  FOR NO KEY UPDATE OF d
)
UPDATE mesh.delivery_queue AS d SET delivered_at = due.now_ms, dead_at = NULL, dead_reason = NULL
FROM due WHERE d.mesh_id = due.mesh_id AND d.history_id = due.history_id AND d.recipient_id = due.recipient_id

-- name: count_attempts
-- The socket lived on without an ack; after too many nobody waits for it any more.
WITH due AS MATERIALIZED (
  SELECT d.mesh_id, d.history_id, d.recipient_id, d.attempts + 1 AS attempts
  FROM unnest($4::bigint[]) AS a (history_id)
  JOIN mesh.delivery_queue AS d ON d.mesh_id = $1 AND d.history_id = a.history_id AND d.recipient_id = $2
  WHERE d.delivered_at IS NULL AND d.dead_at IS NULL
    AND $5::bigint = (
      SELECT max(token) FROM mesh.seat WHERE member_id = $2 AND session_pubkey = $3 COLLATE "C" AND NOT presence_only
    )
  ORDER BY d.mesh_id, d.history_id, d.recipient_id
  FOR NO KEY UPDATE OF d
)
UPDATE mesh.delivery_queue AS d SET
  attempts = due.attempts,
  dead_at = CASE WHEN due.attempts >= $7::integer THEN $6::bigint END,
  dead_reason = CASE WHEN due.attempts >= $7 THEN 'attempts_exhausted' END
FROM due WHERE d.mesh_id = due.mesh_id AND d.history_id = due.history_id AND d.recipient_id = due.recipient_id
RETURNING d.history_id, d.dead_at IS NOT NULL

-- name: mark_read
-- The reader's explicit mark; the first one counts.
WITH found AS MATERIALIZED (
  SELECT d.mesh_id, d.history_id, d.recipient_id, d.read_at, h.sender_id, h.client_message_id
  FROM unnest($3::text[]) AS wanted (broker_message_id)
  JOIN mesh.message_history AS h ON h.broker_message_id = wanted.broker_message_id COLLATE "C" AND h.mesh_id = $1
  JOIN mesh.delivery_queue AS d
    ON d.mesh_id = h.mesh_id AND d.history_id = h.history_id AND d.recipient_id = $2
  ORDER BY d.mesh_id, d.history_id, d.recipient_id
  FOR NO KEY UPDATE OF d
), marked AS (
  UPDATE mesh.delivery_queue AS d SET read_at = $4 FROM found AS f
  WHERE d.mesh_id = f.mesh_id AND d.history_id = f.history_id AND d.recipient_id = f.recipient_id
    AND f.read_at IS NULL
), reader AS (
  UPDATE mesh.member SET last_read_at = $4
  WHERE id = $2 AND EXISTS (SELECT 1 FROM found) AND (last_read_at IS NULL OR last_read_at < $4)
)
SELECT sender_id, client_message_id FROM found

-- name: depth
-- All that waits, of all members; counted only so far, since it is asked often and may be millions.
SELECT count(*) FROM (
  SELECT 1 FROM mesh.delivery_queue WHERE delivered_at IS NULL AND dead_at IS NULL AND recipient_id > 0
  ORDER BY recipient_id, history_id LIMIT $1
) AS waiting

-- name: backlogs
-- Of each member of a mesh what waits for it and how much its inbox holds that it has not marked as read, both counted
-- up to a bound, and when it last marked something.
SELECT m.id, (
  SELECT count(*) FROM (
    SELECT 1 FROM mesh.delivery_queue AS d
    WHERE d.recipient_id = m.id AND d.delivered_at IS NULL AND d.dead_at IS NULL
    LIMIT $2
  ) AS waiting
), (
  SELECT count(*) FROM (
    SELECT 1 FROM mesh.delivery_queue AS d
    WHERE d.recipient_id = m.id AND d.delivered_at IS NOT NULL AND d.read_at IS NULL AND d.acted_at IS NULL
      AND d.dead_at IS NULL
    LIMIT $2
  ) AS unread
), m.last_read_at
FROM mesh.member AS m WHERE m.mesh_id = $1 AND m.revoked_at IS NULL
