-- name: create_queue
-- Any member makes one; made again it is the same.
INSERT INTO mesh.queue (mesh_id, name, created_by, created_at) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING
RETURNING true

-- name: queues
-- All queues of the mesh, with what is in them.
SELECT q.name, q.created_at,
  (SELECT count(*) FROM mesh.queue_lease AS l WHERE l.queue_id = q.id AND l.owner_id IS NULL AND NOT l.is_settled),
  (SELECT count(*) FROM mesh.queue_lease AS l WHERE l.queue_id = q.id AND l.owner_id IS NOT NULL AND NOT l.is_settled)
FROM mesh.queue AS q WHERE q.mesh_id = $1 ORDER BY q.name

-- name: find_queue
-- A queue by its name.
SELECT id FROM mesh.queue WHERE mesh_id = $1 AND name = $2

-- name: take_back
-- Leases that nobody renewed in time, of one queue or of all: ready for the next worker, or dead letters if they came
-- back too often. What another broker is just now working on is left to it.
WITH expired AS MATERIALIZED (
  SELECT mesh_id, history_id, returns + 1 AS returns FROM mesh.queue_lease
  WHERE expires_at <= (SELECT mesh.now_ms()) AND owner_id IS NOT NULL AND NOT is_settled
    AND ($1::bigint IS NULL OR queue_id = $1)
  FOR UPDATE SKIP LOCKED
), leases AS (
  UPDATE mesh.queue_lease AS l
  SET owner_id = NULL, expires_at = 0, returns = e.returns, is_settled = e.returns >= $3::integer
  FROM expired AS e WHERE l.mesh_id = e.mesh_id AND l.history_id = e.history_id
), deliveries AS (
  UPDATE mesh.delivery_queue AS d SET
    delivered_at = NULL,
    dead_at = CASE WHEN e.returns >= $3 THEN $2::bigint END,
    dead_reason = CASE WHEN e.returns >= $3 THEN 'returns_exhausted' END
  FROM expired AS e WHERE d.mesh_id = e.mesh_id AND d.history_id = e.history_id AND d.recipient_id = 0
)
SELECT count(*) FROM expired

-- name: next_ready
-- The oldest message that nobody holds, nor is just now being given by another broker.
WITH next AS MATERIALIZED (
  SELECT mesh_id, history_id, token, returns FROM mesh.queue_lease
  WHERE queue_id = $1 AND owner_id IS NULL AND NOT is_settled
  ORDER BY history_id LIMIT 1
  FOR UPDATE SKIP LOCKED
)
SELECT n.history_id, n.token, n.returns, h.sender_id, h.broker_message_id, h.client_message_id, s.pubkey, s.name,
  m.body, m.meta, m.reply_to, h.accepted_at, mesh.now_ms()
FROM next AS n
JOIN mesh.message_history AS h ON h.mesh_id = n.mesh_id AND h.history_id = n.history_id
JOIN mesh.message_queue AS m ON m.mesh_id = n.mesh_id AND m.history_id = n.history_id
JOIN mesh.member AS s ON s.id = h.sender_id

-- name: standing
-- The lease of one message of a queue, held until the commit; the time is read once it is.
WITH held AS MATERIALIZED (
  SELECT l.history_id, l.owner_id, l.token, l.expires_at, l.returns, l.is_settled, d.acted_at IS NOT NULL AS is_acted,
    d.dead_at IS NOT NULL AS is_dead, h.sender_id, h.client_message_id
  FROM mesh.message_history AS h
  JOIN mesh.queue_lease AS l ON l.mesh_id = h.mesh_id AND l.history_id = h.history_id
  JOIN mesh.queue AS q ON q.id = l.queue_id
  JOIN mesh.delivery_queue AS d ON d.mesh_id = h.mesh_id AND d.history_id = h.history_id AND d.recipient_id = 0
  WHERE h.broker_message_id = $1 AND h.mesh_id = $2 AND q.name = $3
  FOR UPDATE OF l
)
SELECT *, mesh.now_ms() FROM held

-- name: grant
-- Under a greater token: whoever held it before can do nothing more. Leased is delivered.
WITH granted AS (
  UPDATE mesh.queue_lease SET owner_id = $3, token = $4, expires_at = $5 WHERE mesh_id = $1 AND history_id = $2
)
UPDATE mesh.delivery_queue SET delivered_at = $6, attempts = $7
WHERE mesh_id = $1 AND history_id = $2 AND recipient_id = 0

-- name: extend
-- The holder asked for more time.
UPDATE mesh.queue_lease SET expires_at = $3 WHERE mesh_id = $1 AND history_id = $2

-- name: settle
-- Nobody will lease it again; acked is acted. The owner stays, as evidence of who did it. A reply to what was handed
-- over may have come first.
WITH settled AS (
  UPDATE mesh.queue_lease SET is_settled = true WHERE mesh_id = $1 AND history_id = $2
)
UPDATE mesh.delivery_queue SET acted_at = $3
WHERE mesh_id = $1 AND history_id = $2 AND recipient_id = 0 AND acted_at IS NULL

-- name: hand_over
-- Nobody will lease it again, and it is not acted yet. The owner stays: it may answer for it.
UPDATE mesh.queue_lease SET is_settled = true WHERE mesh_id = $1 AND history_id = $2

-- name: give_back
-- Ready for the next worker, or a dead letter if it came back too often.
WITH returned AS (
  UPDATE mesh.queue_lease SET owner_id = NULL, expires_at = 0, returns = $3, is_settled = $3 >= $5::integer
  WHERE mesh_id = $1 AND history_id = $2
)
UPDATE mesh.delivery_queue SET
  delivered_at = NULL,
  dead_at = CASE WHEN $3 >= $5 THEN $4::bigint END,
  dead_reason = CASE WHEN $3 >= $5 THEN 'returns_exhausted' END
WHERE mesh_id = $1 AND history_id = $2 AND recipient_id = 0
