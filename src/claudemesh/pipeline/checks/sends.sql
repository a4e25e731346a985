-- What was promised of a send. Every query finds what must not be: what it is, in which mesh, under which id, whose,
-- and the particulars.

-- name: lost_acknowledged
-- Whoever was told that it is durable finds it: at the broker, among what was deleted later, or in an outbox, where
-- it waits or was given up in sight of all.
SELECT 'acknowledged' AS what, s.mesh, s.id, s.who, 'in no store' AS detail
FROM sent AS s
LEFT JOIN accepted AS a ON a.mesh = s.mesh AND a.sender = s.who AND a.id = s.id
LEFT JOIN queued AS q ON q.id = s.id AND (q.owner IS NULL OR q.owner = s.who) AND q.status <> 'done'
WHERE s.ok_times > 0 AND a.id IS NULL AND q.id IS NULL

-- name: done_not_stored
-- An outbox lets go of what the broker has, and of nothing else.
SELECT 'done' AS what, q.mesh, q.id, q.owner AS who, 'the broker has no ' || q.broker_message_id AS detail
FROM queued AS q
JOIN broker_mesh AS x ON x.uid = q.mesh
LEFT JOIN accepted AS a ON a.broker_message_id = q.broker_message_id
WHERE q.status = 'done' AND a.id IS NULL

-- name: two_rows_one_id
-- An id is accepted once, as long as it is not forgotten; and a message comes into an inbox once.
SELECT 'accepted ' || n.times || ' times' AS what, n.mesh, n.id, n.sender AS who, n.detail
FROM (
  SELECT mesh, sender, id, count(*) AS times, min(broker_message_id) || ' ' || max(broker_message_id) AS detail
  FROM accepted GROUP BY mesh, sender, id
) AS n
LEFT JOIN forgotten AS f ON f.mesh = n.mesh AND f.sender = n.sender AND f.id = n.id
WHERE n.times > 1 + coalesce(f.times, 0)
UNION ALL
SELECT 'received ' || count(*) || ' times', mesh, min(id), owner, broker_message_id
FROM received GROUP BY store, mesh, owner, broker_message_id HAVING count(*) > 1

-- name: phantom_row
-- The broker has what its sender sent. A log that names a member names all that it sends, from the first of them that
-- was stored; what an operator sent again under another id is the outbox's to tell.
SELECT 'never sent' AS what, s.mesh, s.id, s.sender AS who, s.broker_message_id AS detail
FROM stored AS s
JOIN (
  SELECT a.mesh, a.sender, min(a.history_id) AS since
  FROM accepted AS a JOIN sent AS t ON t.mesh = a.mesh AND t.who = a.sender AND t.id = a.id
  GROUP BY a.mesh, a.sender
) AS known ON known.mesh = s.mesh AND known.sender = s.sender AND s.history_id > known.since
LEFT JOIN sent AS t ON t.mesh = s.mesh AND t.who = s.sender AND t.id = s.id AND t.asked_times > 0
LEFT JOIN queued AS q ON q.owner = s.sender AND q.id = s.id AND q.is_successor = 1
WHERE t.id IS NULL AND q.id IS NULL

-- name: stored_not_sent
-- What the broker has of a member whose outbox is here went through it. What is newer than all that the outbox knows
-- to be accepted may have come after it was read.
SELECT 'in no outbox' AS what, s.mesh, s.id, s.sender AS who, s.broker_message_id AS detail
FROM stored AS s
JOIN (SELECT mesh, owner, max(history_id) AS upto FROM queued WHERE status = 'done' GROUP BY mesh, owner) AS known
  ON known.mesh = s.mesh AND known.owner = s.sender AND s.history_id <= known.upto
LEFT JOIN queued AS q ON q.owner = s.sender AND q.mesh = s.mesh AND q.id = s.id
WHERE q.id IS NULL

-- name: refused_but_stored
-- What was refused every time is nowhere.
SELECT 'refused' AS what, s.mesh, s.id, s.who, coalesce(a.broker_message_id, q.status) AS detail
FROM sent AS s
LEFT JOIN accepted AS a ON a.mesh = s.mesh AND a.sender = s.who AND a.id = s.id
LEFT JOIN queued AS q ON q.mesh = s.mesh AND q.owner = s.who AND q.id = s.id
WHERE s.fail_times > 0 AND s.fail_times = s.asked_times AND (a.id IS NOT NULL OR q.id IS NOT NULL)

-- name: body_changed
-- The words are those that were sent, at the broker, in an inbox and to whoever reads them; and the broker took what
-- the outbox holds.
SELECT k.what, k.mesh, k.id, k.sender AS who, k.broker_message_id AS detail
FROM (
  SELECT 'stored' AS what, mesh, id, sender, broker_message_id, body FROM stored WHERE body IS NOT NULL
  UNION ALL
  SELECT 'received', mesh, id, sender, broker_message_id, body FROM received WHERE body IS NOT NULL
  UNION ALL
  SELECT 'read', h.mesh, a.id, a.sender, a.broker_message_id, h.body
  FROM h JOIN accepted AS a ON a.mesh = h.mesh AND a.broker_message_id = h.key
  WHERE h.f = 'recv' AND h.ev = 'ok' AND h.body <> ''
) AS k
JOIN h AS i ON i.mesh = k.mesh AND i.who = k.sender AND i.id = k.id AND i.f = 'send' AND i.ev = 'invoke'
GROUP BY k.what, k.mesh, k.id, k.sender, k.broker_message_id, k.body
HAVING max(CASE WHEN i.body = k.body THEN 1 ELSE 0 END) = 0
UNION ALL
SELECT 'accepted', s.mesh, s.id, s.sender, s.broker_message_id
FROM stored AS s JOIN queued AS q ON q.mesh = s.mesh AND q.owner = s.sender AND q.id = s.id
WHERE q.fingerprint <> s.fingerprint

-- name: order_of_acks
-- Two sends to one destination are accepted in the order in which they were acknowledged: a process that was answered
-- before it sent the next, and an outbox, whose numbers are that order.
SELECT 'acknowledged later' AS what, n.mesh, n.id, n.who, 'history ' || n.history_id AS detail
FROM (
  SELECT s.mesh, s.id, s.who, a.history_id, s.first_asked, min(s.first_ok) OVER (
    PARTITION BY s.mesh, s.who, s.process, a.destination ORDER BY a.history_id
    ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
  ) AS a_later_one_ok
  FROM sent AS s
  JOIN stored AS a ON a.mesh = s.mesh AND a.sender = s.who AND a.id = s.id
  LEFT JOIN forgotten AS f ON f.mesh = s.mesh AND f.sender = s.who AND f.id = s.id
  WHERE s.process = s.other_process AND f.id IS NULL
) AS n
WHERE n.a_later_one_ok < n.first_asked
UNION ALL
SELECT 'queued later', n.mesh, n.id, n.owner, 'history ' || n.history_id
FROM (
  SELECT mesh, id, owner, history_id,
    max(history_id) OVER (
      PARTITION BY store, destination ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS before
  FROM queued WHERE status = 'done' AND owner IS NOT NULL
) AS n
WHERE n.before > n.history_id

-- name: torn_transaction
-- What one accept writes is there as a whole, or not at all.
SELECT 'missing ' || n.part AS what, n.mesh, n.id, n.sender AS who, 'history ' || n.history_id AS detail
FROM (
  SELECT store, mesh_id, history_id, mesh, id, sender, 'client_message_dedupe' AS part FROM stored
  UNION ALL
  SELECT store, mesh_id, history_id, mesh, id, sender,
    CASE WHEN kind = 'topic' THEN 'topic_message' ELSE 'message_queue' END
  FROM stored
  UNION ALL
  SELECT store, mesh_id, history_id, mesh, id, sender, 'delivery_queue' FROM stored WHERE kind <> 'topic'
  UNION ALL
  SELECT store, mesh_id, history_id, mesh, id, sender, 'queue_lease' FROM stored WHERE kind = 'queue'
) AS n
LEFT JOIN part AS p ON p.store = n.store AND p.mesh_id = n.mesh_id AND p.history_id = n.history_id AND p.part = n.part
WHERE p.part IS NULL
UNION ALL
SELECT 'missing message_history', x.uid, r.id, '', r.part || coalesce(' ' || r.history_id, '')
FROM (
  SELECT p.store, p.mesh_id, p.history_id, '' AS id, p.part
  FROM (
    SELECT store, mesh_id, history_id, part FROM part
    UNION
    SELECT store, mesh_id, history_id, 'delivery_queue' FROM broker_delivery_queue
    UNION
    SELECT store, mesh_id, history_id, 'mention_index' FROM broker_mention_index
  ) AS p
  LEFT JOIN stored AS s ON s.store = p.store AND s.mesh_id = p.mesh_id AND s.history_id = p.history_id
  LEFT JOIN tombstoned AS g ON g.store = p.store AND g.mesh_id = p.mesh_id AND g.history_id = p.history_id
  WHERE s.store IS NULL AND g.store IS NULL
  UNION ALL
  SELECT d.store, d.mesh_id, NULL, d.client_message_id, 'client_message_dedupe'
  FROM broker_client_message_dedupe AS d
  LEFT JOIN accepted AS a ON a.broker_message_id = d.broker_message_id
  WHERE a.id IS NULL
) AS r
JOIN broker_mesh AS x ON x.store = r.store AND x.id = r.mesh_id
