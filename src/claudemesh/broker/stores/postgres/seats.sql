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

-- name: hold_member
-- One connection of a member is seated at a time; a revoked one is none any more.
SELECT 1 FROM mesh.member WHERE id = $1 AND mesh_id = $2 AND revoked_at IS NULL FOR NO KEY UPDATE

-- name: standing
-- The seats of a key that other brokers gave, and whether they have fallen silent since.
SELECT s.token, s.instance_id, b.expires_at <= mesh.now_ms()
FROM mesh.seat AS s JOIN mesh.broker AS b ON b.id = s.broker_id
WHERE s.member_id = $1 AND s.session_pubkey = $2 AND s.broker_id <> $3
ORDER BY s.token

-- name: take
-- The newest seat of its key. None, if the broker was taken for dead.
INSERT INTO mesh.seat (broker_id, mesh_id, member_id, session_pubkey, instance_id)
SELECT b.id, $2, $3, $4, $5 FROM mesh.broker AS b WHERE b.id = $1 FOR KEY SHARE
RETURNING token

-- name: leave
-- These are nobody's any more.
DELETE FROM mesh.seat WHERE token = ANY($1::bigint[]) RETURNING member_id

-- name: of_broker
-- What a broker gave and nobody took.
SELECT token FROM mesh.seat WHERE broker_id = $1

-- name: present
-- Who is connected, at whichever broker.
SELECT DISTINCT s.member_id FROM mesh.seat AS s JOIN mesh.broker AS b ON b.id = s.broker_id
WHERE s.mesh_id = $1 AND b.expires_at > mesh.now_ms()
