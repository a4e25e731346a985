-- name: standing
-- All leases of a key that have not ended.
SELECT id, uid, instance_id, token, seat, lease_until, presence_only FROM presence
WHERE member_id = ?1 AND session_pubkey = ?2 AND disconnected_at IS NULL ORDER BY id

-- name: count
-- How many leases the sessions of a member have, up to a bound.
SELECT count(*) FROM (
  SELECT 1 FROM presence WHERE member_id = ?1 AND session_pubkey <> '' AND disconnected_at IS NULL LIMIT ?2
)

-- name: begin
-- A new lease, carried by a seat.
INSERT INTO presence (
  uid, mesh_id, member_id, session_pubkey, instance_id, presence_only, token, seat, info, connected_at
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)

-- name: carry_on
-- Another seat carries it from now on.
UPDATE presence SET instance_id = ?2, presence_only = ?3, token = ?4, seat = ?5, lease_until = NULL, info = ?6
WHERE id = ?1

-- name: go_offline
-- The seat that carried it is gone, and it stands until then without one.
UPDATE presence SET seat = NULL, lease_until = ?2 WHERE seat = ?1
RETURNING mesh_id, member_id, session_pubkey, uid

-- name: orphaned
-- Carried by seats of a broker that ended.
SELECT seat FROM presence WHERE seat IS NOT NULL

-- name: is_due
-- Whether any lease has run out.
SELECT EXISTS (SELECT 1 FROM presence WHERE disconnected_at IS NULL AND lease_until <= ?1)

-- name: due
-- Those that have, in the order in which they did.
SELECT id, uid, mesh_id, member_id, session_pubkey, seat FROM presence
WHERE disconnected_at IS NULL AND lease_until <= ?1 ORDER BY lease_until, id LIMIT ?2

-- name: of_key
-- Those of a key, or of one instance of it.
SELECT id, uid, mesh_id, member_id, session_pubkey, seat FROM presence
WHERE member_id = ?1 AND session_pubkey = ?2 AND disconnected_at IS NULL AND (?3 IS NULL OR instance_id = ?3)
ORDER BY id

-- name: of_member
-- Those of a member, its own and its sessions'.
SELECT id, uid, mesh_id, member_id, session_pubkey, seat FROM presence
WHERE member_id = ?1 AND disconnected_at IS NULL ORDER BY id

-- name: finish
-- It ended.
UPDATE presence SET seat = NULL, disconnected_at = ?2 WHERE id = ?1 AND disconnected_at IS NULL

-- name: is_there
-- Whether another lease of the key has not ended: of several that run out together only the last is a departure.
SELECT EXISTS (SELECT 1 FROM presence WHERE member_id = ?1 AND session_pubkey = ?2 AND disconnected_at IS NULL)

-- name: next_seq
-- The next number of a mesh, for who comes or goes.
INSERT INTO presence_counter (mesh_id, seq) VALUES (?1, 1)
ON CONFLICT (mesh_id) DO UPDATE SET seq = seq + 1 RETURNING seq

-- name: note
-- What happened to a lease.
INSERT INTO presence_event (mesh_id, member_id, session_pubkey, presence_uid, what, at, because, seq)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)

-- name: announced
-- What happened, as others are told.
SELECT e.mesh_id, e.seq, e.what, e.at, e.member_id, m.uid, m.name, m.pubkey, e.session_pubkey, e.presence_uid,
  e.because, p.info
FROM presence_event AS e JOIN member AS m ON m.id = e.member_id LEFT JOIN presence AS p ON p.uid = e.presence_uid
WHERE e.mesh_id = ?1 AND e.seq > ?2 ORDER BY e.seq LIMIT ?3

-- name: latest
-- The last number of a mesh.
SELECT seq FROM presence_counter WHERE mesh_id = ?1

-- name: present
-- The leases of a mesh that stand.
SELECT member_id, session_pubkey, uid, instance_id, seat, presence_only, lease_until, connected_at, info FROM presence
WHERE mesh_id = ?1 AND disconnected_at IS NULL AND (lease_until IS NULL OR lease_until > ?2) ORDER BY id

-- name: delivering
-- Sessions that get what names them themselves, and will when they are back.
SELECT member_id, session_pubkey, uid FROM presence
WHERE disconnected_at IS NULL AND presence_only = 0 AND session_pubkey <> ''

-- name: sweep_events
-- What was noted long ago, oldest first, up to the first that was not.
DELETE FROM presence_event WHERE id IN (
  SELECT id FROM presence_event
  WHERE id < coalesce((SELECT min(id) FROM presence_event WHERE at >= ?1), 9223372036854775807)
  ORDER BY id LIMIT ?2
)

-- name: sweep_leases
-- Leases that ended long ago.
DELETE FROM presence WHERE id IN (
  SELECT id FROM presence WHERE disconnected_at < ?1 ORDER BY disconnected_at LIMIT ?2
)
RETURNING mesh_id, session_pubkey

-- name: forget_key
-- A session's key goes with the last of its leases.
DELETE FROM member_key WHERE mesh_id = ?1 AND pubkey = ?2 AND kind = 'session'
  AND NOT EXISTS (SELECT 1 FROM presence WHERE mesh_id = ?1 AND session_pubkey = ?2 AND session_pubkey <> '')

-- name: void_tokens
-- No resume token that was given out before is good any more.
UPDATE presence SET token = token + 1048576 WHERE disconnected_at IS NULL
