-- name: hold_member
-- One connection of a member is seated at a time; a revoked one is none any more.
SELECT 1 FROM mesh.member WHERE id = $1 AND mesh_id = $2 AND revoked_at IS NULL FOR NO KEY UPDATE

-- name: take
-- The newest seat of its key. None, if the broker was taken for dead.
INSERT INTO mesh.seat (broker_id, member_id, session_pubkey, presence_only)
SELECT b.id, $2, $3, $4 FROM mesh.broker AS b WHERE b.id = $1 FOR KEY SHARE
RETURNING token

-- name: begin
-- A new lease, carried by a seat.
INSERT INTO mesh.presence (
  uid, mesh_id, member_id, session_pubkey, instance_id, presence_only, token, seat, broker_id, info, connected_at
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- name: carry_on
-- Another seat carries it from now on.
UPDATE mesh.presence SET
  instance_id = $2, presence_only = $3, token = $4, seat = $5, broker_id = $6, info = $7, lease_until = NULL
WHERE id = $1

-- name: sitters
-- Whose seats these are, or whose leases they carry: the seats of a broker that died are gone, and its leases stand.
SELECT member_id FROM mesh.seat WHERE token = ANY($1::bigint[])
UNION
SELECT member_id FROM mesh.presence WHERE seat = ANY($1::bigint[])

-- name: leave
-- These are nobody's any more.
DELETE FROM mesh.seat WHERE token = ANY($1::bigint[]) RETURNING member_id

-- name: of_broker
-- What a broker gave and nobody took.
SELECT token FROM mesh.seat WHERE broker_id = $1

-- name: count
-- How many leases the sessions of a member have, up to a bound.
SELECT count(*) FROM (
  SELECT 1 FROM mesh.presence WHERE member_id = $1 AND session_pubkey <> '' AND disconnected_at IS NULL LIMIT $2
) AS standing
