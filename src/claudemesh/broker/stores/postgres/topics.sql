-- name: create_topic
-- Any member makes one; made again it is the same.
INSERT INTO mesh.topic (mesh_id, name, created_by, created_at) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING
RETURNING true

-- name: topics
-- All topics of the mesh, as one member sees them.
SELECT t.name, t.created_at, count(s.member_id), coalesce(bool_or(s.member_id = $2), false)
FROM mesh.topic AS t
LEFT JOIN mesh.topic_subscription AS s ON s.topic_id = t.id AND s.ended_at IS NULL
WHERE t.mesh_id = $1
GROUP BY t.id ORDER BY t.name

-- name: is_in_force
-- A member who was revoked since the hello does nothing more.
SELECT revoked_at IS NULL FROM mesh.member WHERE id = $1 AND mesh_id = $2

-- name: find_topic
-- A topic by its name.
SELECT id FROM mesh.topic WHERE mesh_id = $1 AND name = $2

-- name: subscribe
-- From the next message on. A subscription that stands stays as it is, an ended one begins anew.
INSERT INTO mesh.topic_subscription AS s (topic_id, member_id, after_history_id) VALUES ($1, $2, $3)
ON CONFLICT (topic_id, member_id) DO UPDATE SET
  after_history_id = CASE WHEN s.ended_at IS NULL THEN s.after_history_id ELSE excluded.after_history_id END,
  ended_at = NULL
RETURNING after_history_id

-- name: unsubscribe
-- No more deliveries from now on.
UPDATE mesh.topic_subscription SET ended_at = $3 WHERE topic_id = $1 AND member_id = $2 AND ended_at IS NULL
RETURNING true
