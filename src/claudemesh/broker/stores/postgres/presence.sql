-- name: hold_members
-- Whoever changes leases of members holds these, in this order.
SELECT id FROM mesh.member WHERE id = ANY($1::bigint[]) ORDER BY id FOR NO KEY UPDATE

-- name: now
-- The server's time, and how long ago a broker looked.
SELECT now_ms, now_ms - (SELECT looked_at FROM mesh.presence_clock) FROM (SELECT mesh.now_ms() AS now_ms) AS clock

-- name: of_key
-- All leases of a key that have not ended.
SELECT id, uid, instance_id, token, seat, lease_until, presence_only FROM mesh.presence
WHERE member_id = $1 AND session_pubkey = $2 AND disconnected_at IS NULL ORDER BY id FOR NO KEY UPDATE

-- name: of_members
-- All leases of members that have not ended, and whether the broker that keeps one is gone.
SELECT p.id, p.uid, p.mesh_id, p.member_id, p.session_pubkey, p.seat, p.lease_until,
  p.broker_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM mesh.broker AS b WHERE b.id = p.broker_id), p.instance_id
FROM mesh.presence AS p
WHERE p.member_id = ANY($1::bigint[]) AND p.disconnected_at IS NULL ORDER BY p.id FOR NO KEY UPDATE OF p

-- name: go_offline
-- The seats that carried them are gone, and each stands until its instant without one.
WITH due AS MATERIALIZED (
  SELECT p.id, d.seat, d.lease_until FROM unnest($1::bigint[], $2::bigint[]) AS d (seat, lease_until)
  JOIN mesh.presence AS p ON p.seat = d.seat ORDER BY p.id FOR NO KEY UPDATE OF p
)
UPDATE mesh.presence AS p SET seat = NULL, broker_id = NULL, lease_until = due.lease_until
FROM due WHERE p.id = due.id
RETURNING p.mesh_id, p.member_id, p.session_pubkey, p.uid, due.seat

-- name: finish
-- They ended, and no connection carries them any more.
WITH unseated AS (
  DELETE FROM mesh.seat WHERE token = ANY($2::bigint[])
)
UPDATE mesh.presence SET seat = NULL, broker_id = NULL, disconnected_at = $3
WHERE id = ANY($1::bigint[])

-- name: number
-- So many more of each mesh come or go; the number of the last of them.
INSERT INTO mesh.presence_counter AS c (mesh_id, seq)
SELECT mesh_id, more FROM unnest($1::bigint[], $2::bigint[]) AS u (mesh_id, more) ORDER BY mesh_id
ON CONFLICT (mesh_id) DO UPDATE SET seq = c.seq + excluded.seq
RETURNING mesh_id, seq

-- name: note
-- What happened to leases; of it what others are told.
WITH noted AS (
  INSERT INTO mesh.presence_event (mesh_id, member_id, session_pubkey, presence_uid, what, because, seq, at)
  SELECT mesh_id, member_id, session_pubkey, presence_uid, what, because, seq, $8::bigint
  FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[])
    WITH ORDINALITY AS u (mesh_id, member_id, session_pubkey, presence_uid, what, because, seq, place)
  ORDER BY place
  RETURNING mesh_id, member_id, session_pubkey, presence_uid, what, because, seq, at
)
SELECT n.mesh_id, n.seq, n.what, n.at, n.member_id, m.uid, m.name, m.pubkey, n.session_pubkey, n.presence_uid,
  n.because, p.info
FROM noted AS n
JOIN mesh.member AS m ON m.id = n.member_id
LEFT JOIN mesh.presence AS p ON p.uid = n.presence_uid
WHERE n.seq IS NOT NULL ORDER BY n.mesh_id, n.seq

-- name: look
-- Whether nobody looked for long, which brokers are gone whose leases still count on them, and whether any lease has
-- run out. That somebody looked is written down now and then: often enough to be no gap, and not each time.
WITH RECURSIVE clock AS MATERIALIZED (
  SELECT mesh.now_ms() AS now_ms
), looked AS (
  UPDATE mesh.presence_clock AS c SET looked_at = clock.now_ms FROM clock
  WHERE clock.now_ms - c.looked_at BETWEEN $2 AND $1
), home AS ( -- each broker that keeps leases, found by one step in the index for each, however many it keeps
  SELECT min(broker_id) AS id FROM mesh.presence WHERE broker_id IS NOT NULL
  UNION ALL
  SELECT (SELECT min(p.broker_id) FROM mesh.presence AS p WHERE p.broker_id > home.id) FROM home
  WHERE home.id IS NOT NULL
)
SELECT
  NOT EXISTS (SELECT 1 FROM mesh.presence_clock AS c, clock WHERE clock.now_ms - c.looked_at <= $1),
  ARRAY(
    SELECT home.id FROM home
    WHERE home.id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM mesh.broker AS b WHERE b.id = home.id)
  ),
  EXISTS (
    SELECT 1 FROM mesh.presence
    WHERE disconnected_at IS NULL AND lease_until <= (SELECT now_ms FROM clock)
  )

-- name: begin_clock
-- The first look.
INSERT INTO mesh.presence_clock (looked_at) VALUES (mesh.now_ms()) ON CONFLICT DO NOTHING

-- name: hold_clock
-- One at a time makes up for what nobody looked at.
SELECT looked_at FROM mesh.presence_clock FOR UPDATE

-- name: extend
-- No time has passed for those who had nobody to return to.
WITH due AS MATERIALIZED (
  SELECT id FROM mesh.presence WHERE disconnected_at IS NULL AND lease_until > $1 ORDER BY id FOR NO KEY UPDATE
)
UPDATE mesh.presence AS p SET lease_until = p.lease_until + $2::bigint FROM due WHERE p.id = due.id

-- name: note_look
-- Somebody looked.
UPDATE mesh.presence_clock SET looked_at = $1

-- name: hold_due
-- Members with leases that have run out or whose broker is one of these. One that is just now changed is left to the
-- next time.
SELECT m.id FROM mesh.member AS m
WHERE m.id = ANY(ARRAY(
  (
    SELECT p.member_id FROM mesh.presence AS p
    WHERE p.disconnected_at IS NULL AND p.lease_until <= (SELECT mesh.now_ms())
    ORDER BY p.lease_until LIMIT $2
  )
  UNION ALL
  (
    SELECT p.member_id FROM unnest($1::bigint[]) AS lost (id)
    CROSS JOIN LATERAL (
      SELECT member_id FROM mesh.presence WHERE broker_id = lost.id ORDER BY broker_id LIMIT $2
    ) AS p
  )
))
ORDER BY m.id FOR NO KEY UPDATE SKIP LOCKED

-- name: present
-- The leases of a mesh that stand, and the server's time.
SELECT member_id, session_pubkey, uid, instance_id, seat, presence_only, lease_until, connected_at, info, now_ms
FROM mesh.presence, (SELECT mesh.now_ms() AS now_ms OFFSET 0) AS clock
WHERE mesh_id = $1 AND disconnected_at IS NULL AND (lease_until IS NULL OR lease_until > now_ms) ORDER BY id

-- name: latest
-- The last number of a mesh.
SELECT seq FROM mesh.presence_counter WHERE mesh_id = $1

-- name: announced
-- Who came and went, as others are told.
SELECT e.mesh_id, e.seq, e.what, e.at, e.member_id, m.uid, m.name, m.pubkey, e.session_pubkey, e.presence_uid,
  e.because, p.info
FROM mesh.presence_event AS e
JOIN mesh.member AS m ON m.id = e.member_id
LEFT JOIN mesh.presence AS p ON p.uid = e.presence_uid
WHERE e.mesh_id = $1 AND e.seq > $2 ORDER BY e.seq LIMIT $3

-- name: sweep_events
-- The oldest of what was noted, if it was long ago.
WITH gone AS (
  DELETE FROM mesh.presence_event WHERE id = ANY(ARRAY(
    SELECT id FROM (SELECT id, at FROM mesh.presence_event ORDER BY id LIMIT $2) AS oldest WHERE at < $1
  )) RETURNING 1
)
SELECT count(*) FROM gone

-- name: ended
-- Leases that ended long ago.
SELECT id, mesh_id, member_id, session_pubkey FROM mesh.presence
WHERE disconnected_at < $1 ORDER BY disconnected_at LIMIT $2

-- name: forget_leases
-- Gone.
DELETE FROM mesh.presence WHERE id = ANY($1::bigint[])

-- name: forget_keys
-- A session's key goes with the last of its leases. None begins meanwhile, since their members are held.
DELETE FROM mesh.member_key AS k USING unnest($1::bigint[], $2::text[]) AS gone (mesh_id, pubkey)
WHERE k.mesh_id = gone.mesh_id AND k.pubkey = gone.pubkey COLLATE "C" AND k.kind = 'session'
  AND NOT EXISTS (
    SELECT 1 FROM mesh.presence AS p
    WHERE p.mesh_id = k.mesh_id AND p.session_pubkey = k.pubkey AND p.session_pubkey <> ''
  )
