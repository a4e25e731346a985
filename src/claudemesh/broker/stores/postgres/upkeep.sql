-- name: offer_state
-- What is set once.
INSERT INTO mesh.broker_state (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING

-- name: state
-- What stands.
SELECT value FROM mesh.broker_state WHERE name = $1

-- name: hold_state
-- What stands, and nobody else changes it until the commit.
SELECT value FROM mesh.broker_state WHERE name = $1 FOR UPDATE

-- name: set_state
-- From now on.
UPDATE mesh.broker_state SET value = $2 WHERE name = $1

-- name: identify_server
-- Which cluster this is and on which of its timelines: a copy or a standby that took over has another.
SELECT concat_ws('/', (SELECT system_identifier FROM pg_control_system()),
  substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))

-- name: hold_counters
-- No accept until the commit.
SELECT count(*) FROM (SELECT 1 FROM mesh.history_counter ORDER BY mesh_id FOR NO KEY UPDATE) AS held

-- name: jump
-- Numbers that a lost part of the past may have used are passed over.
WITH moved AS (
  UPDATE mesh.history_counter SET history_id = history_id + $1 RETURNING mesh_id, history_id - $1 AS history_id
)
INSERT INTO mesh.history_jump (mesh_id, after_history_id, skipped, epoch, begun_at)
SELECT mesh_id, history_id, $1, $2, $3 FROM moved

-- name: jump_presence
-- And the numbers of those who came and went; of a mesh that lost all of them, too.
INSERT INTO mesh.presence_counter AS c (mesh_id, seq) SELECT id, $1 FROM mesh.mesh ORDER BY id
ON CONFLICT (mesh_id) DO UPDATE SET seq = c.seq + excluded.seq

-- name: void_tokens
-- No resume token that was given out before is good any more: it would have to match exactly.
WITH held AS MATERIALIZED (
  SELECT id FROM mesh.presence WHERE disconnected_at IS NULL ORDER BY id FOR NO KEY UPDATE
)
UPDATE mesh.presence AS p SET token = p.token + 1048576 FROM held WHERE p.id = held.id

-- name: meshes
-- Where there may be something to sweep.
SELECT id FROM mesh.mesh ORDER BY id

-- name: old_messages
-- The oldest messages of a mesh, in their order.
SELECT history_id, accepted_at FROM mesh.message_history
WHERE mesh_id = $1 AND history_id > $2 ORDER BY history_id LIMIT $3

-- name: planned_messages
-- Those of some messages that are kept.
SELECT history_id, accepted_at, broker_message_id FROM mesh.message_history
WHERE mesh_id = $1 AND history_id = ANY($2::bigint[])

-- name: hold_leases
-- Leases before their deliveries, as everywhere.
SELECT count(*) FROM (
  SELECT 1 FROM mesh.queue_lease WHERE mesh_id = $1 AND history_id = ANY($2::bigint[]) ORDER BY history_id FOR UPDATE
) AS held

-- name: bury
-- A message that goes while somebody still waits for it is a dead letter first, where an operator can see it. Nobody
-- will lease it any more. For one that was handed over nobody waits here: it is in a ledger, as another is in an inbox,
-- and goes like that one.
WITH due AS MATERIALIZED (
  SELECT d.mesh_id, d.history_id, d.recipient_id FROM mesh.delivery_queue AS d
  LEFT JOIN mesh.queue_lease AS l
    ON d.recipient_id = 0 AND l.mesh_id = d.mesh_id AND l.history_id = d.history_id
  WHERE d.mesh_id = $1 AND d.history_id = ANY($2::bigint[]) AND d.dead_at IS NULL
    AND (d.delivered_at IS NULL OR (d.recipient_id = 0 AND d.acted_at IS NULL AND l.is_settled IS NOT TRUE))
  ORDER BY d.mesh_id, d.history_id, d.recipient_id
  FOR NO KEY UPDATE OF d
), leases AS (
  UPDATE mesh.queue_lease AS l SET is_settled = true FROM due
  WHERE due.recipient_id = 0 AND l.mesh_id = due.mesh_id AND l.history_id = due.history_id
), buried AS (
  UPDATE mesh.delivery_queue AS d SET dead_at = $3, dead_reason = 'retention' FROM due
  WHERE d.mesh_id = due.mesh_id AND d.history_id = due.history_id AND d.recipient_id = due.recipient_id
)
SELECT count(*) FROM due

-- name: buried_since
-- Messages with dead letters that were made a short time ago: they are still shown.
SELECT DISTINCT history_id FROM mesh.delivery_queue
WHERE mesh_id = $1 AND history_id = ANY($2::bigint[]) AND dead_reason = 'retention' AND dead_at > $3

-- name: delete_messages
-- Gone, with their receipts. The ids stay used, and now know their numbers themselves; what is left of the messages is
-- for those who copied them before.
WITH gone AS MATERIALIZED (
  DELETE FROM mesh.message_history WHERE mesh_id = $1 AND history_id = ANY($2::bigint[])
  RETURNING history_id, broker_message_id, sender_id, client_message_id
), posts AS (
  DELETE FROM mesh.topic_message AS x USING gone WHERE x.mesh_id = $1 AND x.history_id = gone.history_id
), messages AS (
  DELETE FROM mesh.message_queue AS x USING gone WHERE x.mesh_id = $1 AND x.history_id = gone.history_id
), deliveries AS (
  DELETE FROM mesh.delivery_queue AS x USING gone WHERE x.mesh_id = $1 AND x.history_id = gone.history_id
), mentions AS (
  DELETE FROM mesh.mention_index AS x USING gone WHERE x.mesh_id = $1 AND x.history_id = gone.history_id
), leases AS (
  DELETE FROM mesh.queue_lease AS x USING gone WHERE x.mesh_id = $1 AND x.history_id = gone.history_id
), ids AS (
  UPDATE mesh.client_message_dedupe AS d SET history_available = false, history_id = gone.history_id FROM gone
  WHERE d.sender_id = gone.sender_id AND d.client_message_id = gone.client_message_id
), tombstones AS (
  INSERT INTO mesh.tombstone (
    what, mesh_id, sender_id, client_message_id, broker_message_id, history_id, deleted_at
  )
  SELECT 'message', $1, sender_id, client_message_id, broker_message_id, history_id, $3 FROM gone ORDER BY history_id
)
SELECT count(*) FROM gone

-- name: pruned_ids
-- Ids whose messages went, in the order in which they went: the order in which they expire.
SELECT t.id, d.sender_id, d.client_message_id, d.expires_at
FROM mesh.tombstone AS t
LEFT JOIN mesh.client_message_dedupe AS d
  ON d.sender_id = t.sender_id AND d.client_message_id = t.client_message_id
WHERE t.id > $1 AND t.what = 'message' ORDER BY t.id LIMIT $2

-- name: retired_ids
-- Ids that were given up and never had a message.
SELECT sender_id, client_message_id FROM mesh.client_message_dedupe
WHERE state = 'retired' AND expires_at <= $1 LIMIT $2

-- name: delete_ids
-- Forgotten, but for their tombstones.
WITH gone AS (
  DELETE FROM mesh.client_message_dedupe AS d
  USING unnest($1::bigint[], $2::text[]) AS o (sender_id, client_message_id)
  WHERE d.sender_id = o.sender_id AND d.client_message_id = o.client_message_id COLLATE "C"
  RETURNING d.mesh_id, d.sender_id, d.client_message_id, d.broker_message_id
), tombstones AS (
  INSERT INTO mesh.tombstone (what, mesh_id, sender_id, client_message_id, broker_message_id, deleted_at)
  SELECT 'dedupe', mesh_id, sender_id, client_message_id, broker_message_id, $3 FROM gone
)
SELECT count(*) FROM gone

-- name: old_events
-- The oldest of what happened to deliveries, and whether it may go.
SELECT e.id, e.at < $1 AND (
  SELECT h.history_id FROM mesh.message_history AS h WHERE h.mesh_id = e.mesh_id AND h.history_id = e.history_id
) IS NULL
FROM mesh.delivery_event AS e ORDER BY e.id LIMIT $2

-- name: delete_events
-- Just these: a transaction that is still open may have taken a smaller number.
DELETE FROM mesh.delivery_event WHERE id = ANY($1::bigint[])

-- name: ids_without_rows
-- Every accepted id that is not marked as pruned has its history row, its message, and what goes with the kind.
SELECT client_message_id, uid, no_history, no_message, no_delivery, no_lease, no_queue FROM (
  SELECT d.client_message_id, m.uid,
    h.history_id IS NULL AS no_history,
    h.history_id IS NOT NULL AND t.history_id IS NULL AND q.history_id IS NULL AS no_message,
    q.history_id IS NOT NULL AND NOT EXISTS (
      SELECT 1 FROM mesh.delivery_queue AS x
      WHERE x.mesh_id = q.mesh_id AND x.history_id = q.history_id AND x.recipient_id = coalesce(q.recipient_id, 0)
    ) AS no_delivery,
    q.queue_id IS NOT NULL AND l.queue_id IS DISTINCT FROM q.queue_id AS no_lease,
    q.queue_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM mesh.queue WHERE queue.id = q.queue_id) AS no_queue
  FROM mesh.client_message_dedupe AS d
  LEFT JOIN mesh.member AS m ON m.id = d.sender_id
  LEFT JOIN mesh.message_history AS h
    ON h.broker_message_id = d.broker_message_id AND h.mesh_id = d.mesh_id AND h.sender_id = d.sender_id
    AND h.client_message_id = d.client_message_id
  LEFT JOIN mesh.topic_message AS t ON t.mesh_id = h.mesh_id AND t.history_id = h.history_id
  LEFT JOIN mesh.message_queue AS q ON q.mesh_id = h.mesh_id AND q.history_id = h.history_id
  LEFT JOIN mesh.queue_lease AS l ON l.mesh_id = h.mesh_id AND l.history_id = h.history_id
  WHERE d.state = 'accepted' AND d.history_available
) AS found
WHERE no_history OR no_message OR no_delivery OR no_lease OR no_queue

-- name: rows_without_ids
-- Everything that an accept wrote leads back to an id that is used.
SELECT h.client_message_id, m.uid, 'client_message_dedupe'
FROM mesh.message_history AS h LEFT JOIN mesh.member AS m ON m.id = h.sender_id
WHERE NOT EXISTS (
  SELECT 1 FROM mesh.client_message_dedupe AS d
  WHERE d.sender_id = h.sender_id AND d.client_message_id = h.client_message_id
    AND d.broker_message_id = h.broker_message_id AND d.history_available
)
UNION ALL
SELECT NULL, NULL, 'message_history' FROM mesh.topic_message AS t
WHERE NOT EXISTS (
  SELECT 1 FROM mesh.message_history AS h WHERE h.mesh_id = t.mesh_id AND h.history_id = t.history_id
)
UNION ALL
SELECT NULL, NULL, 'message_history' FROM mesh.message_queue AS q
WHERE NOT EXISTS (
  SELECT 1 FROM mesh.message_history AS h WHERE h.mesh_id = q.mesh_id AND h.history_id = q.history_id
)
UNION ALL
SELECT NULL, m.uid, 'message_history' FROM mesh.delivery_queue AS x
LEFT JOIN mesh.member AS m ON m.id = x.recipient_id
WHERE NOT EXISTS (
  SELECT 1 FROM mesh.message_history AS h WHERE h.mesh_id = x.mesh_id AND h.history_id = x.history_id
)
UNION ALL
SELECT NULL, NULL, 'message_history' FROM mesh.mention_index AS i
WHERE NOT EXISTS (
  SELECT 1 FROM mesh.message_history AS h WHERE h.mesh_id = i.mesh_id AND h.history_id = i.history_id
)
UNION ALL
SELECT NULL, NULL, 'message_queue' FROM mesh.queue_lease AS l
WHERE NOT EXISTS (
  SELECT 1 FROM mesh.message_queue AS q WHERE q.mesh_id = l.mesh_id AND q.history_id = l.history_id
)

-- name: gaps
-- The order of a mesh has no gaps: what is kept, what was deleted and what was passed over add up to the counter.
SELECT NULL, NULL, 'history_id' FROM mesh.history_counter AS c
WHERE c.history_id <>
  (SELECT count(*) FROM mesh.message_history AS h WHERE h.mesh_id = c.mesh_id)
  + (SELECT count(*) FROM mesh.tombstone AS t WHERE t.mesh_id = c.mesh_id AND t.what = 'message')
  + (SELECT coalesce(sum(j.skipped), 0) FROM mesh.history_jump AS j WHERE j.mesh_id = c.mesh_id)
