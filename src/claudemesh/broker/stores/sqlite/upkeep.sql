-- name: offer_seed
-- The broker's key is made once.
INSERT INTO broker_state (name, value) VALUES ('broker_seed', ?1) ON CONFLICT DO NOTHING

-- name: seed
-- The one in force.
SELECT value FROM broker_state WHERE name = 'broker_seed'

-- name: resume_seeds
-- The keys of resume tokens, one after the other, the one in force first.
SELECT value FROM broker_state WHERE name = 'resume_seeds'

-- name: keep_resume_seeds
-- These from now on.
INSERT INTO broker_state (name, value) VALUES ('resume_seeds', ?1)
ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: epoch
-- The number of the last epoch that began.
SELECT CAST(value AS TEXT) FROM broker_state WHERE name = 'epoch'

-- name: keep_epoch
-- And now this one.
INSERT INTO broker_state (name, value) VALUES ('epoch', ?1) ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: note_jumps
-- Numbers that a lost part of the past may have used are passed over.
INSERT INTO history_jump (mesh_id, after_history_id, skipped, epoch, begun_at)
SELECT mesh_id, history_id, ?1, ?2, ?3 FROM history_counter

-- name: jump
-- In every mesh.
UPDATE history_counter SET history_id = history_id + ?1

-- name: jump_presence
-- And the numbers of those who came and went; of a mesh that lost all of them, too.
INSERT INTO presence_counter (mesh_id, seq) SELECT id, ?1 FROM mesh WHERE true
ON CONFLICT (mesh_id) DO UPDATE SET seq = seq + excluded.seq

-- name: meshes
-- Where there may be something to sweep.
SELECT id FROM mesh ORDER BY id

-- name: old_messages
-- The oldest messages of a mesh, in their order.
SELECT history_id, accepted_at, broker_message_id, sender_id, client_message_id FROM message_history
WHERE mesh_id = ?1 AND history_id > ?2 ORDER BY history_id LIMIT ?3

-- name: planned_messages
-- Those of some messages that are kept.
SELECT h.history_id, h.accepted_at, h.broker_message_id, h.sender_id, h.client_message_id
FROM json_each(?2) AS wanted CROSS JOIN message_history AS h ON h.mesh_id = ?1 AND h.history_id = wanted.value

-- name: bury
-- A message that goes while somebody still waits for it is a dead letter first, where an operator can see it. For one
-- that was handed over nobody waits here: it is in a ledger, as another is in an inbox, and goes like that one.
UPDATE delivery_queue SET dead_at = ?3, dead_reason = 'retention'
WHERE mesh_id = ?1 AND history_id = ?2 AND dead_at IS NULL
  AND (delivered_at IS NULL OR (recipient_id = 0 AND acted_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM queue_lease AS l WHERE l.mesh_id = ?1 AND l.history_id = ?2 AND l.is_settled = 1
  )))

-- name: waiting
-- Who waits for it.
SELECT recipient_id FROM delivery_queue
WHERE mesh_id = ?1 AND history_id = ?2 AND recipient_id > 0 AND delivered_at IS NULL AND dead_at IS NULL

-- name: settle_lease
-- Nobody will lease it any more.
UPDATE queue_lease SET is_settled = 1 WHERE mesh_id = ?1 AND history_id = ?2

-- name: buried_since
-- Dead letters that were made a short time ago.
SELECT 1 FROM delivery_queue WHERE mesh_id = ?1 AND history_id = ?2 AND dead_reason = 'retention' AND dead_at > ?3
LIMIT 1

-- name: delete_topic_message
-- Gone.
DELETE FROM topic_message WHERE mesh_id = ?1 AND history_id = ?2

-- name: delete_message
-- Gone.
DELETE FROM message_queue WHERE mesh_id = ?1 AND history_id = ?2

-- name: delete_deliveries
-- Gone, with their receipts.
DELETE FROM delivery_queue WHERE mesh_id = ?1 AND history_id = ?2

-- name: delete_mentions
-- Gone.
DELETE FROM mention_index WHERE mesh_id = ?1 AND history_id = ?2

-- name: delete_lease
-- Gone.
DELETE FROM queue_lease WHERE mesh_id = ?1 AND history_id = ?2

-- name: delete_history
-- Gone.
DELETE FROM message_history WHERE mesh_id = ?1 AND history_id = ?2

-- name: flip_history_available
-- The id stays used; a retry is told that its message is no longer kept.
UPDATE client_message_dedupe SET history_available = 0 WHERE sender_id = ?1 AND client_message_id = ?2

-- name: bury_message
-- What is left of it, for those who copied it before.
INSERT INTO tombstone (what, mesh_id, sender_id, client_message_id, broker_message_id, history_id, deleted_at)
VALUES ('message', ?1, ?2, ?3, ?4, ?5, ?6)

-- name: sweep_position
-- Up to which tombstone the ids have been swept.
SELECT CAST(value AS TEXT) FROM broker_state WHERE name = 'dedupe_sweep_position'

-- name: keep_sweep_position
-- And now up to here.
INSERT INTO broker_state (name, value) VALUES ('dedupe_sweep_position', ?1)
ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: pruned_ids
-- Ids whose messages went, in the order in which they went: the order in which they expire.
SELECT t.id, d.sender_id, d.client_message_id, d.expires_at
FROM tombstone AS t
LEFT JOIN client_message_dedupe AS d ON d.sender_id = t.sender_id AND d.client_message_id = t.client_message_id
WHERE t.id > ?1 AND t.what = 'message' ORDER BY t.id LIMIT ?2

-- name: retired_ids
-- Ids that were given up and never had a message.
SELECT sender_id, client_message_id FROM client_message_dedupe INDEXED BY client_message_dedupe_retired
WHERE state = 'retired' AND expires_at <= ?1 LIMIT ?2

-- name: bury_id
-- The tombstone of an id that is about to be forgotten.
INSERT INTO tombstone (what, mesh_id, sender_id, client_message_id, broker_message_id, deleted_at)
SELECT 'dedupe', mesh_id, sender_id, client_message_id, broker_message_id, ?3 FROM client_message_dedupe
WHERE sender_id = ?1 AND client_message_id = ?2

-- name: delete_id
-- Forgotten.
DELETE FROM client_message_dedupe WHERE sender_id = ?1 AND client_message_id = ?2

-- name: old_events
-- The oldest of what happened to deliveries, and whether it may go.
SELECT e.id, e.at < ?1 AND NOT EXISTS (
  SELECT 1 FROM message_history AS h WHERE h.mesh_id = e.mesh_id AND h.history_id = e.history_id
)
FROM delivery_event AS e ORDER BY e.id LIMIT ?2

-- name: delete_event
-- Gone.
DELETE FROM delivery_event WHERE id = ?1

-- name: ids_without_rows
-- Every accepted id that is not marked as pruned has its history row, its message, and what goes with the kind.
SELECT d.client_message_id, m.uid,
  h.history_id IS NULL OR h.broker_message_id <> d.broker_message_id,
  h.history_id IS NOT NULL AND t.id IS NULL AND q.id IS NULL,
  q.id IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM delivery_queue AS x
    WHERE x.mesh_id = d.mesh_id AND x.history_id = d.history_id AND x.recipient_id = coalesce(q.recipient_id, 0)
  ),
  q.queue_id IS NOT NULL AND l.queue_id IS NOT q.queue_id,
  q.queue_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM queue WHERE queue.id = q.queue_id)
FROM client_message_dedupe AS d
LEFT JOIN member AS m ON m.id = d.sender_id
LEFT JOIN message_history AS h ON h.mesh_id = d.mesh_id AND h.history_id = d.history_id
LEFT JOIN topic_message AS t ON t.mesh_id = d.mesh_id AND t.history_id = d.history_id
LEFT JOIN message_queue AS q ON q.mesh_id = d.mesh_id AND q.history_id = d.history_id
LEFT JOIN queue_lease AS l ON l.mesh_id = d.mesh_id AND l.history_id = d.history_id
WHERE d.state = 'accepted' AND d.history_available = 1

-- name: rows_without_ids
-- Everything that an accept wrote leads back to an id that is used.
SELECT h.client_message_id, m.uid, 'client_message_dedupe'
FROM message_history AS h LEFT JOIN member AS m ON m.id = h.sender_id
WHERE NOT EXISTS (
  SELECT 1 FROM client_message_dedupe AS d
  WHERE d.sender_id = h.sender_id AND d.client_message_id = h.client_message_id AND d.history_id = h.history_id
    AND d.history_available = 1
)
UNION ALL
SELECT NULL, NULL, 'message_history' FROM topic_message AS t
WHERE NOT EXISTS (SELECT 1 FROM message_history AS h WHERE h.mesh_id = t.mesh_id AND h.history_id = t.history_id)
UNION ALL
SELECT NULL, NULL, 'message_history' FROM message_queue AS q
WHERE NOT EXISTS (SELECT 1 FROM message_history AS h WHERE h.mesh_id = q.mesh_id AND h.history_id = q.history_id)
UNION ALL
SELECT NULL, m.uid, 'message_history' FROM delivery_queue AS x LEFT JOIN member AS m ON m.id = x.recipient_id
WHERE NOT EXISTS (SELECT 1 FROM message_history AS h WHERE h.mesh_id = x.mesh_id AND h.history_id = x.history_id)
UNION ALL
SELECT NULL, NULL, 'message_history' FROM mention_index AS i
WHERE NOT EXISTS (SELECT 1 FROM message_history AS h WHERE h.mesh_id = i.mesh_id AND h.history_id = i.history_id)
UNION ALL
SELECT NULL, NULL, 'message_queue' FROM queue_lease AS l
WHERE NOT EXISTS (SELECT 1 FROM message_queue AS q WHERE q.mesh_id = l.mesh_id AND q.history_id = l.history_id)

-- name: open_without_bits
-- What is open waits, and what waits is open.
SELECT NULL, m.uid, 'delivery_open' FROM delivery_queue AS x LEFT JOIN member AS m ON m.id = x.recipient_id
WHERE x.recipient_id > 0 AND (x.delivered_at IS NULL AND x.dead_at IS NULL) <> coalesce(
  (SELECT o.bits >> (x.history_id % ?1) & 1 FROM delivery_open AS o
   WHERE o.recipient_id = x.recipient_id AND o.block = x.history_id / ?1), 0)

-- name: gaps
-- The order of a mesh has no gaps: what is kept, what was deleted and what was passed over add up to the counter.
SELECT NULL, NULL, 'history_id' FROM history_counter AS c
WHERE c.history_id <>
  (SELECT count(*) FROM message_history AS h WHERE h.mesh_id = c.mesh_id)
  + (SELECT count(*) FROM tombstone AS t WHERE t.mesh_id = c.mesh_id AND t.what = 'message')
  + (SELECT coalesce(sum(j.skipped), 0) FROM history_jump AS j WHERE j.mesh_id = c.mesh_id)
