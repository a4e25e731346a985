-- What was promised of a message on its way to its readers. As in `sends.sql`.

-- name: never_delivered
-- What the broker says is delivered is in an inbox of its recipient, unless it is older than what is kept there.
SELECT d.state AS what, d.mesh, d.broker_message_id AS id, d.recipient AS who, 'history ' || d.history_id AS detail
FROM delivery AS d
JOIN (
  SELECT mesh, owner, max(oldest) AS since
  FROM (
    SELECT r.store, r.mesh, r.owner, min(r.history_id) AS oldest
    FROM received AS r
    JOIN delivery AS s ON s.mesh = r.mesh AND s.recipient = r.owner AND s.broker_message_id = r.broker_message_id
    WHERE s.took_a_detour = 0
    GROUP BY r.store, r.mesh, r.owner
  ) AS in_inbox
  GROUP BY mesh, owner
) AS kept ON kept.mesh = d.mesh AND kept.owner = d.recipient AND d.history_id >= kept.since
LEFT JOIN received AS r ON r.mesh = d.mesh AND r.owner = d.recipient AND r.broker_message_id = d.broker_message_id
WHERE d.state IN ('delivered', 'read', 'acted') AND r.id IS NULL

-- name: received_not_stored
-- What is in an inbox the broker once accepted. What is newer than all that it has may have come after it was read.
SELECT 'not accepted' AS what, r.mesh, r.id, r.owner AS who, r.broker_message_id AS detail
FROM received AS r
JOIN (SELECT mesh, max(history_id) AS upto FROM accepted GROUP BY mesh) AS known
  ON known.mesh = r.mesh AND r.history_id <= known.upto
LEFT JOIN accepted AS a ON a.mesh = r.mesh AND a.broker_message_id = r.broker_message_id
WHERE a.id IS NULL

-- name: wrong_recipient
-- Nobody gets, and nobody is shown, what was not for them.
SELECT g.what, g.mesh, g.id, g.who, s.broker_message_id AS detail
FROM (
  SELECT 'received' AS what, mesh, id, owner AS who, broker_message_id FROM received
  UNION
  SELECT 'read', mesh, id, who, key FROM h WHERE f = 'recv' AND ev = 'ok' AND key <> ''
) AS g
JOIN stored AS s ON s.mesh = g.mesh AND s.broker_message_id = g.broker_message_id
LEFT JOIN delivery AS d ON d.mesh = g.mesh AND d.broker_message_id = g.broker_message_id AND d.recipient = g.who
WHERE d.recipient IS NULL

-- name: order_per_pair
-- What one member sent to one destination comes in that order. What was given back or given up came when it could,
-- and of what retention deleted nobody knows whether it was.
SELECT 'received late' AS what, n.mesh, n.id, n.owner AS who, n.sender || ' history ' || n.history_id AS detail
FROM (
  SELECT r.mesh, r.id, r.owner, r.sender, r.history_id,
    max(r.history_id) OVER (
      PARTITION BY r.store, r.sender, r.topic ORDER BY r.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS before
  FROM received AS r
  JOIN delivery AS d ON d.mesh = r.mesh AND d.recipient = r.owner AND d.broker_message_id = r.broker_message_id
  WHERE d.took_a_detour = 0
) AS n
WHERE n.before > n.history_id

-- name: redelivered_after_ack
-- What a process marked as read is not shown to it as new by a call that it made after that.
SELECT 'shown again' AS what, r.mesh, r.key AS id, r.who, 'line ' || min(r.n) AS detail
FROM h AS r
JOIN h AS a ON a.mesh = r.mesh AND a.who = r.who AND a.process = r.process AND a.key = r.key AND a.f = 'ack'
  AND a.ev = 'ok' AND a.t < r.asked
WHERE r.f = 'recv' AND r.ev = 'ok' AND r.key <> ''
GROUP BY r.mesh, r.key, r.who
