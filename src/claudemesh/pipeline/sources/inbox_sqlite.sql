-- name: identity
-- Which file this is.
SELECT value FROM remembered WHERE name = 'epoch'

-- name: position
-- How far it has come, also if its last rows were swept.
SELECT json_array(json_array(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'event'), 0))) AS event

-- name: witness
-- What happened last. A file that came back from a backup uses its numbers again.
SELECT at || ' ' || type FROM event WHERE seq = ?1 ->> '$.event[0][0]'

-- name: body
-- The words.
SELECT t.seq, t.broker_message_id, t.body, t.meta, t.reply_to
FROM json_each(?1) AS r CROSS JOIN inbox AS t WHERE t.seq > r.value ->> 0 AND t.seq <= r.value ->> 1

-- name: counts
-- The store's own count of what came.
SELECT 'inbox', count(*)
FROM json_each(?1, '$.event') AS r CROSS JOIN inbox AS t WHERE t.seq > r.value ->> 0 AND t.seq <= r.value ->> 1
