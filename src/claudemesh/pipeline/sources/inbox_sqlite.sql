-- name: identity
-- Which file this is.
SELECT value FROM remembered WHERE name = 'epoch'

-- name: last
-- How far it has come, also if its last rows were swept.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'event'), 0)

-- name: inbox
-- What came, without its words.
SELECT t.seq, t.sender_id, t.client_message_id, t.broker_message_id, t.history_id, t.sender_pubkey, t.sender_name,
  t.topic, t.priority, t.accepted_at, t.received_at
FROM json_each(?1) AS r CROSS JOIN inbox AS t WHERE t.seq > r.value ->> 0 AND t.seq <= r.value ->> 1

-- name: event
-- What happened, without its particulars.
SELECT t.seq, t.type, t.at
FROM json_each(?1) AS r CROSS JOIN event AS t WHERE t.seq > r.value ->> 0 AND t.seq <= r.value ->> 1

-- name: body
-- The words.
SELECT t.seq, t.body, t.meta, t.reply_to
FROM json_each(?1) AS r CROSS JOIN inbox AS t WHERE t.seq > r.value ->> 0 AND t.seq <= r.value ->> 1

-- name: count
-- The store's own count of what came in a range.
SELECT count(*) FROM inbox WHERE seq > CAST(?1 AS INTEGER) AND seq <= CAST(?2 AS INTEGER)
