-- name: messages
-- Some messages of all meshes, all by arithmetic. For a while, five members of a mesh talk; then others do.
CREATE OR REPLACE TEMP TABLE m AS
SELECT i, mesh_id, 1 + i // $meshes AS history_id, base + (turn + hash(i) % 5) % $members AS sender_id, accepted_at,
  CASE WHEN hash(i + 1) % 20 < 9 THEN 'topic' WHEN hash(i + 1) % 20 < 18 THEN 'dm' ELSE 'queue' END AS kind, base,
  base + (turn + hash(i + 2) % 5) % $members AS recipient_id, hash(i + 3) % $topics AS topic_id,
  printf('%011X%015X', accepted_at, hash(i + 4) >> 4) AS broker_message_id,
  printf('%011X%015X', accepted_at, hash(i + 5) >> 4) AS client_message_id
FROM (
  SELECT i, 1 + i % $meshes AS mesh_id, 1 + i % $meshes * $members AS base, hash(i // 20000) % $members AS turn,
    $began_at + i * $span_ms // $messages AS accepted_at
  FROM range($first, $last, $step) AS r (i)
)

-- name: planted
-- The holes: five of each kind, in some of the messages that are at hand.
CREATE TABLE planted AS
SELECT i, CASE kind
    WHEN 'dm' THEN ['no delivery', 'for another', 'no history'][1 + place // 5]
    WHEN 'topic' THEN ['no post', 'no id'][1 + place // 5]
    WHEN 'queue' THEN ['no lease'][1 + place // 5]
  END AS hole
FROM (
  SELECT i, kind, row_number() OVER (PARTITION BY kind ORDER BY hash(i + 6)) - 1 AS place
  FROM m
)
WHERE hole IS NOT NULL

-- name: deliveries
-- A topic has two subscribers. What was planted for another goes to the next member.
CREATE OR REPLACE TEMP TABLE d AS
SELECT i, mesh_id, history_id, accepted_at, kind, hash(i + 7) % 1000 AS chance, CASE kind
    WHEN 'queue' THEN 0
    WHEN 'topic' THEN base + (2 * topic_id + copy) % $members
    ELSE base + (recipient_id - base + CAST(i IN (FROM planted SELECT i WHERE hole = 'for another') AS INT)) % $members
  END AS recipient_id
FROM m, range(0, 2) AS c (copy) WHERE copy = 0 OR kind = 'topic'

-- name: client_message_dedupe
-- Ids.
SELECT *, unhex(sha256(client_message_id)) AS request_fingerprint, accepted_at AS first_seen_at, NULL AS expires_at
FROM m WHERE i NOT IN (FROM planted SELECT i WHERE hole = 'no id') ORDER BY mesh_id, history_id

-- name: message_history
-- The order.
SELECT *, NULL AS sender_seq
FROM m WHERE i NOT IN (FROM planted SELECT i WHERE hole = 'no history') ORDER BY mesh_id, history_id

-- name: topic_message
-- Posts.
SELECT *, 'next' AS priority, 'plain' AS encoding, 200 AS body_bytes
FROM m WHERE kind = 'topic' AND i NOT IN (FROM planted SELECT i WHERE hole = 'no post') ORDER BY mesh_id, history_id

-- name: message_queue
-- Messages to one, and to a mesh's queue.
SELECT mesh_id, history_id, CASE kind WHEN 'dm' THEN recipient_id END AS recipient_id,
  CASE kind WHEN 'queue' THEN mesh_id END AS queue_id, 'next' AS priority, 'plain' AS encoding, 200 AS body_bytes
FROM m WHERE kind <> 'topic' ORDER BY mesh_id, history_id

-- name: delivery_queue
-- For whom.
SELECT * FROM d WHERE i NOT IN (FROM planted SELECT i WHERE hole = 'no delivery')
ORDER BY mesh_id, history_id, recipient_id

-- name: mention_index
-- A few.
SELECT *, 'bob' AS mentioned FROM m WHERE kind = 'topic' AND hash(i + 7) % 10 = 0 ORDER BY mesh_id, history_id

-- name: queue_lease
-- One for each message of a queue.
SELECT *, mesh_id AS queue_id
FROM m WHERE kind = 'queue' AND i NOT IN (FROM planted SELECT i WHERE hole = 'no lease') ORDER BY mesh_id, history_id

-- name: delivery_event
-- Nine of ten were delivered, some of a queue's twice, and one of a thousand was given up.
SELECT 4 * i + e.n + 4 * $messages * (recipient_id % 2) AS id, *,
  accepted_at + 5 + hash(i, recipient_id) % 400 + 999 * e.n AS at, 1 AS attempts, CASE e.what WHEN 'dead' THEN 'refused' END AS reason
FROM d, (VALUES (0, 'delivered'), (1, 'returned'), (2, 'delivered'), (3, 'dead')) AS e (n, what)
WHERE CASE e.n WHEN 0 THEN chance < 900 WHEN 3 THEN chance = 7 ELSE kind = 'queue' AND chance < 50 END ORDER BY i, e.n

-- name: mesh
-- With a budget that some senders come near to.
SELECT 1 + g AS id, printf('MESH%022d', 1 + g) AS uid, printf('mesh-%d', 1 + g) AS slug, $budget AS sends_per_window,
  $began_at AS created_at
FROM range($meshes) AS r (g)

-- name: member
-- As many in each mesh.
SELECT 1 + g AS id, printf('MEMBER%020d', 1 + g) AS uid, 1 + g // $members AS mesh_id, '' AS name, '' AS pubkey,
  '' AS role, $began_at AS joined_at, NULL AS revoked_at
FROM range($meshes * $members) AS r (g)

-- name: queue
-- One in each mesh.
SELECT 1 + g AS id, 1 + g AS mesh_id, 'jobs' AS name FROM range($meshes) AS r (g)

-- name: history_counter
-- Where each mesh is.
SELECT 1 + g AS mesh_id, ($messages - 1 - g) // $meshes + 1 AS history_id FROM range($meshes) AS r (g)

-- name: tombstone
-- None.
SELECT 0 AS id, '' AS what, 0 AS mesh_id, 0 AS sender_id, '' AS client_message_id, '' AS broker_message_id,
  0 AS history_id, 0 AS deleted_at
WHERE false

-- name: presence_event
-- None.
SELECT 0 AS id, 0 AS mesh_id, 0 AS member_id, '' AS session_pubkey, '' AS presence_uid, '' AS what, 0 AS at,
  '' AS because, 0 AS seq
WHERE false

-- name: history_jump
-- None.
SELECT 0 AS mesh_id, 0 AS after_history_id, 0 AS skipped, 0 AS epoch WHERE false

-- name: topic
-- None is asked for.
SELECT 0 AS id, 0 AS mesh_id, '' AS name WHERE false

-- name: retired_id
-- None.
SELECT 0 AS sender_id, '' AS client_message_id, 0 AS mesh_id, 0 AS first_seen_at, 0 AS expires_at WHERE false

-- name: holes
-- What a check has to say of what was planted.
WITH n AS (
  SELECT p.hole, m.client_message_id, s.uid AS sender, r.uid AS recipient, x.uid AS mesh
  FROM planted AS p JOIN m USING (i) JOIN member AS s ON s.id = m.sender_id JOIN member AS r ON r.id = m.recipient_id
  JOIN mesh AS x ON x.id = m.mesh_id
)
SELECT client_message_id, sender, CASE hole
    WHEN 'no delivery' THEN 'delivery_queue' WHEN 'for another' THEN 'delivery_queue' WHEN 'no post' THEN 'message'
    WHEN 'no id' THEN 'client_message_dedupe' WHEN 'no lease' THEN 'queue_lease' ELSE 'message_history'
  END AS missing, mesh
FROM n
UNION ALL SELECT NULL, NULL, 'message_history', mesh FROM n WHERE hole = 'no history'
UNION ALL SELECT NULL, recipient, 'message_history', mesh FROM n WHERE hole = 'no history'
