-- name: orphans
-- What `broker check` says, as joins.
WITH ids AS (
  SELECT d.sender_id, d.client_message_id, d.mesh_id, h.history_id
  FROM client_message_dedupe AS d
  LEFT JOIN message_history AS h USING (broker_message_id, mesh_id, sender_id, client_message_id)
  WHERE NOT EXISTS (FROM tombstone AS t WHERE t.what = 'message' AND t.broker_message_id = d.broker_message_id)
    AND NOT EXISTS (
      FROM tombstone AS t
      WHERE t.what = 'dedupe' AND t.sender_id = d.sender_id AND t.client_message_id = d.client_message_id
    )
), parts AS (
  SELECT d.sender_id, d.client_message_id, d.mesh_id, d.history_id IS NULL AS no_history,
    d.history_id IS NOT NULL AND t.history_id IS NULL AND q.history_id IS NULL AS no_message,
    q.history_id IS NOT NULL AND x.history_id IS NULL AS no_delivery,
    q.queue_id IS NOT NULL AND l.queue_id IS NULL AS no_lease,
    q.queue_id IS NOT NULL AND w.id IS NULL AS no_queue
  FROM ids AS d
  LEFT JOIN topic_message AS t USING (mesh_id, history_id)
  LEFT JOIN message_queue AS q USING (mesh_id, history_id)
  LEFT JOIN delivery_queue AS x
    ON x.mesh_id = q.mesh_id AND x.history_id = q.history_id AND x.recipient_id = coalesce(q.recipient_id, 0)
  LEFT JOIN queue_lease AS l ON l.mesh_id = q.mesh_id AND l.history_id = q.history_id AND l.queue_id = q.queue_id
  LEFT JOIN queue AS w ON w.id = q.queue_id
), found AS (
  SELECT mesh_id, sender_id, client_message_id, array_to_string(list_filter([
      CASE WHEN no_history THEN 'message_history' END, CASE WHEN no_message THEN 'message' END,
      CASE WHEN no_delivery THEN 'delivery_queue' END, CASE WHEN no_lease THEN 'queue_lease' END,
      CASE WHEN no_queue THEN 'queue' END
    ], lambda part: part IS NOT NULL), ',') AS missing
  FROM parts WHERE no_history OR no_message OR no_delivery OR no_lease OR no_queue
  UNION ALL
  SELECT mesh_id, sender_id, client_message_id, 'client_message_dedupe'
  FROM message_history AS h ANTI JOIN client_message_dedupe AS d USING (sender_id, client_message_id, broker_message_id)
  UNION ALL
  SELECT mesh_id, NULL, NULL, 'message_history' FROM topic_message ANTI JOIN message_history USING (mesh_id, history_id)
  UNION ALL
  SELECT mesh_id, NULL, NULL, 'message_history' FROM message_queue ANTI JOIN message_history USING (mesh_id, history_id)
  UNION ALL
  SELECT mesh_id, recipient_id, NULL, 'message_history'
  FROM delivery_queue ANTI JOIN message_history USING (mesh_id, history_id)
  UNION ALL
  SELECT mesh_id, NULL, NULL, 'message_history' FROM mention_index ANTI JOIN message_history USING (mesh_id, history_id)
  UNION ALL
  SELECT mesh_id, NULL, NULL, 'message_queue' FROM queue_lease ANTI JOIN message_queue USING (mesh_id, history_id)
  UNION ALL
  SELECT c.mesh_id, NULL, NULL, 'history_id'
  FROM history_counter AS c
  LEFT JOIN (SELECT mesh_id, count(*) AS kept FROM message_history GROUP BY mesh_id) AS h USING (mesh_id)
  WHERE c.history_id <> coalesce(h.kept, 0)
)
SELECT coalesce(f.client_message_id, ''), coalesce(s.uid, ''), f.missing, m.uid
FROM found AS f LEFT JOIN member AS s ON s.id = f.sender_id JOIN mesh AS m ON m.id = f.mesh_id

-- name: limits
-- Windows by sender and day.
SELECT m.uid AS mesh, w.began_at // 86400000 AS day, s.uid AS sender, sum(w.sends) AS sends, count(*) AS windows,
  max(w.sends) AS peak, count(*) FILTER (WHERE w.sends >= 0.8 * m.sends_per_window) AS windows_near
FROM (
  SELECT mesh_id, sender_id, accepted_at // 60000 * 60000 AS began_at, count(*) AS sends
  FROM message_history GROUP BY ALL
) AS w
JOIN mesh AS m ON m.id = w.mesh_id JOIN member AS s ON s.id = w.sender_id
GROUP BY 1, 2, 3

-- name: latency
-- Exact percentiles by mesh and day, by mesh, over all.
WITH folded AS (
  SELECT mesh_id, history_id, max(id) FILTER (WHERE what = 'delivered') AS delivered,
    max(id) FILTER (WHERE what = 'returned') AS returned, max(id) FILTER (WHERE what = 'dead') AS dead,
    arg_max("at", id) FILTER (WHERE what = 'delivered') AS delivered_at
  FROM delivery_event WHERE recipient_id > 0 GROUP BY mesh_id, history_id, recipient_id
), took AS (
  SELECT h.mesh_id, h.accepted_at // 86400000 AS day, f.delivered_at - h.accepted_at AS took_ms
  FROM folded AS f JOIN message_history AS h USING (mesh_id, history_id)
  WHERE f.delivered > greatest(coalesce(f.returned, 0), coalesce(f.dead, 0))
)
SELECT mesh_id, day, count(*) AS deliveries, quantile_cont(took_ms, [0.5, 0.9, 0.99]) AS quantiles,
  max(took_ms) AS max_ms
FROM took GROUP BY ROLLUP (mesh_id, day)
