-- name: create_queue
-- Any member makes one; made again it is the same.
INSERT INTO queue (mesh_id, name, created_by, created_at) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING

-- name: queues
-- All queues of the mesh, with what is in them.
SELECT q.name, q.created_at,
  (SELECT count(*) FROM queue_lease AS l WHERE l.queue_id = q.id AND l.owner_id IS NULL AND l.is_settled = 0),
  (SELECT count(*) FROM queue_lease AS l WHERE l.queue_id = q.id AND l.owner_id IS NOT NULL AND l.is_settled = 0)
FROM queue AS q WHERE q.mesh_id = ?1 ORDER BY q.name

-- name: find_queue
-- A queue by its name.
SELECT id FROM queue WHERE mesh_id = ?1 AND name = ?2

-- name: expired
-- Leases of one queue that nobody renewed in time.
SELECT mesh_id, history_id, token, returns FROM queue_lease INDEXED BY queue_lease_held
WHERE queue_id = ?1 AND expires_at <= ?2 AND owner_id IS NOT NULL AND is_settled = 0

-- name: queues_with_expired
-- Where something has to be taken back.
SELECT DISTINCT queue_id FROM queue_lease WHERE expires_at <= ?1 AND owner_id IS NOT NULL AND is_settled = 0

-- name: next_ready
-- The oldest message that nobody holds.
SELECT l.history_id, l.token, l.returns, h.sender_id, h.broker_message_id, h.client_message_id, s.pubkey, s.name,
  m.body, m.meta, m.reply_to, h.accepted_at
FROM queue_lease AS l INDEXED BY queue_lease_ready
JOIN message_history AS h ON h.mesh_id = l.mesh_id AND h.history_id = l.history_id
JOIN message_queue AS m ON m.mesh_id = l.mesh_id AND m.history_id = l.history_id
JOIN member AS s ON s.id = h.sender_id
WHERE l.queue_id = ?1 AND l.owner_id IS NULL AND l.is_settled = 0
ORDER BY l.history_id LIMIT 1

-- name: standing
-- The lease of one message of a queue.
SELECT l.history_id, l.owner_id, l.token, l.expires_at, l.returns, l.is_settled, d.acted_at IS NOT NULL,
  d.dead_at IS NOT NULL, h.sender_id, h.client_message_id
FROM message_history AS h JOIN queue_lease AS l ON l.mesh_id = h.mesh_id AND l.history_id = h.history_id
JOIN queue AS q ON q.id = l.queue_id
JOIN delivery_queue AS d ON d.mesh_id = h.mesh_id AND d.history_id = h.history_id AND d.recipient_id = 0
WHERE h.broker_message_id = ?1 AND h.mesh_id = ?2 AND q.name = ?3

-- name: grant
-- Under a greater token: whoever held it before can do nothing more.
UPDATE queue_lease SET owner_id = ?3, token = ?4, expires_at = ?5
WHERE mesh_id = ?1 AND history_id = ?2 AND owner_id IS NULL AND is_settled = 0

-- name: extend
-- The holder asked for more time.
UPDATE queue_lease SET expires_at = ?4 WHERE mesh_id = ?1 AND history_id = ?2 AND token = ?3 AND is_settled = 0

-- name: settle
-- Nobody will lease it again. The owner stays, as evidence of who did it, or handed it over and may answer for it.
UPDATE queue_lease SET is_settled = 1 WHERE mesh_id = ?1 AND history_id = ?2 AND token = ?3 AND is_settled = 0

-- name: give_back
-- Ready for the next worker.
UPDATE queue_lease SET owner_id = NULL, expires_at = 0, returns = ?4
WHERE mesh_id = ?1 AND history_id = ?2 AND token = ?3 AND is_settled = 0

-- name: bury
-- It came back too often.
UPDATE queue_lease SET owner_id = NULL, expires_at = 0, returns = ?4, is_settled = 1
WHERE mesh_id = ?1 AND history_id = ?2 AND token = ?3 AND is_settled = 0

-- name: delivery_leased
-- Leased is delivered.
UPDATE delivery_queue SET delivered_at = ?3, attempts = ?4 WHERE mesh_id = ?1 AND history_id = ?2 AND recipient_id = 0

-- name: delivery_acted
-- Acked is acted.
UPDATE delivery_queue SET acted_at = ?3 WHERE mesh_id = ?1 AND history_id = ?2 AND recipient_id = 0

-- name: delivery_returned
-- Accepted again.
UPDATE delivery_queue SET delivered_at = NULL WHERE mesh_id = ?1 AND history_id = ?2 AND recipient_id = 0

-- name: delivery_dead
-- A dead letter.
UPDATE delivery_queue SET delivered_at = NULL, dead_at = ?3, dead_reason = 'returns_exhausted'
WHERE mesh_id = ?1 AND history_id = ?2 AND recipient_id = 0
