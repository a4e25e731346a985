-- name: register
-- A broker begins, on this server's clock.
INSERT INTO mesh.broker (expires_at) VALUES (mesh.now_ms() + $1) RETURNING id

-- name: renew
-- It lives; nothing is returned if it was taken for dead.
UPDATE mesh.broker SET expires_at = mesh.now_ms() + $2 WHERE id = $1 RETURNING true

-- name: reap
-- Brokers that did not beat in time go, with their seats; of those the members whose seats they were. One that is just
-- now doing something lives.
WITH dead AS MATERIALIZED (
  SELECT id FROM mesh.broker WHERE expires_at <= (SELECT mesh.now_ms()) FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM mesh.broker AS b USING dead WHERE b.id = dead.id
)
SELECT DISTINCT s.member_id FROM mesh.seat AS s JOIN dead ON dead.id = s.broker_id

-- name: keep
-- Be the keeper, or stay it: if nobody is, or the one who was is gone or silent.
INSERT INTO mesh.keeper AS k (broker_id, expires_at) VALUES ($1, mesh.now_ms() + $2)
ON CONFLICT (only_one) DO UPDATE SET broker_id = excluded.broker_id, expires_at = excluded.expires_at
WHERE k.broker_id = excluded.broker_id OR k.expires_at <= mesh.now_ms()
  OR NOT EXISTS (SELECT 1 FROM mesh.broker AS b WHERE b.id = k.broker_id)
RETURNING true

-- name: others
-- Whether other brokers run.
SELECT EXISTS (SELECT 1 FROM mesh.broker WHERE id <> $1)

-- name: unregister
-- A broker ends, and its seats with it.
DELETE FROM mesh.broker WHERE id = $1
