-- name: create_topic
-- Any member makes one; made again it is the same.
INSERT INTO topic (mesh_id, name, created_by, created_at) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING

-- name: topics
-- All topics of the mesh, as one member sees them.
SELECT t.name, t.created_at,
  (SELECT count(*) FROM topic_subscription AS s WHERE s.topic_id = t.id AND s.ended_at IS NULL),
  EXISTS (SELECT 1 FROM topic_subscription AS s WHERE s.topic_id = t.id AND s.member_id = ?2 AND s.ended_at IS NULL)
FROM topic AS t WHERE t.mesh_id = ?1 ORDER BY t.name

-- name: topic_and_history
-- A topic, and where the order of its mesh stands.
SELECT t.id, c.history_id FROM topic AS t JOIN history_counter AS c ON c.mesh_id = t.mesh_id
WHERE t.mesh_id = ?1 AND t.name = ?2

-- name: subscribe
-- From the next message on. A subscription that stands stays as it is, an ended one begins anew.
INSERT INTO topic_subscription (topic_id, member_id, after_history_id) VALUES (?1, ?2, ?3)
ON CONFLICT (topic_id, member_id) DO UPDATE SET after_history_id = excluded.after_history_id, ended_at = NULL
WHERE ended_at IS NOT NULL

-- name: subscribed_after
-- Since when.
SELECT after_history_id FROM topic_subscription WHERE topic_id = ?1 AND member_id = ?2

-- name: unsubscribe
-- No more deliveries from now on.
UPDATE topic_subscription SET ended_at = ?3 WHERE topic_id = ?1 AND member_id = ?2 AND ended_at IS NULL
