-- name: is_held
-- A message is known by its sender and the sender's own id for it, whatever the broker sends again.
SELECT 1 FROM inbox WHERE sender_id = ?1 AND client_message_id = ?2
UNION ALL
SELECT 1 FROM inbox_tombstone WHERE sender_id = ?1 AND client_message_id = ?2;

-- name: last_event
-- The number of the last thing that happened, swept or not.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'event'), 0);

-- name: insert_event
-- The next thing that happened.
INSERT INTO event (seq, type, at, data) VALUES (?1, ?2, ?3, ?4);

-- name: insert
-- A new message, under the number of its event.
INSERT INTO inbox (
    seq, sender_id, client_message_id, broker_message_id, history_id, sender_pubkey, sender_name, topic, body, meta,
    priority, reply_to, to_session, accepted_at, received_at
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15);

-- name: index_words
-- So that it is found by what it says.
INSERT INTO inbox_words (rowid, body) VALUES (?1, ?2);

-- name: page
-- Oldest first; a filter that is null lets everything through.
SELECT
    seq, client_message_id, broker_message_id, history_id, sender_pubkey, sender_name, topic, body, meta, priority,
    reply_to, accepted_at, received_at, read_at, to_session
FROM inbox
WHERE seq > :after
    AND (:since IS NULL OR received_at >= :since)
    AND (:unread = 0 OR read_at IS NULL)
    AND (:topic IS NULL OR topic = :topic)
    AND (:sender IS NULL OR :sender IN (sender_pubkey, sender_name))
    AND (
        :mentions IS NULL
        OR EXISTS (SELECT 1 FROM json_each(inbox.meta, '$.mentions') WHERE json_each.value IN (:mentions, :mentions_name))
    )
ORDER BY seq LIMIT :limit;

-- name: search
-- As `page`, for messages that hold all the words.
SELECT
    inbox.seq, client_message_id, broker_message_id, history_id, sender_pubkey, sender_name, topic, inbox.body, meta,
    priority, reply_to, accepted_at, received_at, read_at, to_session
FROM inbox_words JOIN inbox ON inbox.seq = inbox_words.rowid
WHERE inbox_words MATCH :words AND inbox_words.rowid > :after
ORDER BY inbox_words.rowid LIMIT :limit;

-- name: find
-- By the broker's id.
SELECT
    seq, client_message_id, broker_message_id, history_id, sender_pubkey, sender_name, topic, body, meta, priority,
    reply_to, accepted_at, received_at, read_at, to_session
FROM inbox WHERE broker_message_id = ?1;

-- name: bounds
-- Which file this is, up to where it was swept, and how far it has come.
SELECT
    (SELECT value FROM remembered WHERE name = 'epoch'),
    coalesce((SELECT CAST(value AS INTEGER) FROM remembered WHERE name = 'swept_upto'), 0),
    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'event'), 0);

-- name: unread
-- What nobody marked as read yet.
SELECT count(*) FROM inbox WHERE read_at IS NULL;

-- name: unread_by_priority
-- The same, apart by how its reader is to be told of it.
SELECT priority, count(*) FROM inbox WHERE read_at IS NULL GROUP BY priority;

-- name: waiting
-- The oldest unread of one priority, each with the beginning of its body.
SELECT broker_message_id, sender_pubkey, sender_name, topic, priority, received_at, substr(body, 1, :characters)
FROM inbox WHERE read_at IS NULL AND priority = :priority ORDER BY seq LIMIT :limit;

-- name: unread_of
-- And that named a session.
SELECT count(*) FROM inbox WHERE to_session = ?1 AND read_at IS NULL;

-- name: events
-- What happened after a number, oldest first; a message comes with its row. What was restored happened before.
SELECT
    event.seq, event.type, event.at, event.data, client_message_id, broker_message_id, history_id, sender_pubkey,
    sender_name, topic, body, meta, priority, reply_to, accepted_at, received_at, read_at, to_session
FROM event LEFT JOIN inbox ON inbox.seq = event.seq
WHERE event.seq > ?1 AND event.type <> 'restored' ORDER BY event.seq LIMIT ?2;

-- name: mark_read
-- A reader's mark stays what it was first.
UPDATE inbox SET read_at = ?2 WHERE broker_message_id = ?1 AND read_at IS NULL RETURNING 1;

-- name: mark_read_upto
-- All that was there up to an event.
UPDATE inbox SET read_at = ?2 WHERE seq <= ?1 AND read_at IS NULL RETURNING 1;

-- name: untold
-- Marks that the broker has not answered for yet.
SELECT seq, broker_message_id FROM inbox WHERE read_at IS NOT NULL AND read_told = 0 ORDER BY seq LIMIT ?1;

-- name: told
-- It has.
UPDATE inbox SET read_told = 1 WHERE seq = ?1;

-- name: old
-- A page of what is older than it needs to be, up to the first that is not: a clock that was wrong for a moment
-- must not take with it what came before.
SELECT seq FROM event
WHERE seq < coalesce((SELECT min(seq) FROM event WHERE at >= ?1), 9223372036854775807)
ORDER BY seq LIMIT ?2;

-- name: delete_message
-- A mark that the broker does not know of yet keeps its message.
DELETE FROM inbox WHERE seq = ?1 AND (read_at IS NULL OR read_told = 1)
RETURNING seq, body, sender_id, client_message_id;

-- name: bury
-- Its id outlives it.
INSERT INTO inbox_tombstone (sender_id, client_message_id, swept_at) VALUES (?1, ?2, ?3);

-- name: unindex_words
-- Its words do not. The index keeps no text, so it has to be told what was there.
INSERT INTO inbox_words (inbox_words, rowid, body) VALUES ('delete', ?1, ?2);

-- name: delete_event
-- Unless its message is still there.
DELETE FROM event WHERE seq = ?1 AND NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.seq = ?1) RETURNING 1;

-- name: forget
-- Tombstones of which nothing can come any more.
DELETE FROM inbox_tombstone WHERE swept_at < ?1;

-- name: remember
-- One small thing under its name.
INSERT INTO remembered (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: recall
-- And back.
SELECT value FROM remembered WHERE name = ?1;

-- name: drop_remembered
-- It is over.
DELETE FROM remembered WHERE name = ?1;

-- name: received
-- How many messages came in each span of time, and how long after the broker took them: half of them, and 99 of 100,
-- at most so long. What was restored came long before.
WITH recent AS MATERIALIZED (
    SELECT received_at / :span_ms AS span, max(received_at - accepted_at, 0) AS took
    FROM inbox INDEXED BY inbox_by_time CROSS JOIN event ON event.seq = inbox.seq AND event.type = 'message'
    WHERE received_at >= :since ORDER BY received_at DESC LIMIT :most
),
ranked AS (
    SELECT
        span, took, row_number() OVER (PARTITION BY span ORDER BY took) AS place,
        count(*) OVER (PARTITION BY span) AS n
    FROM recent
)
SELECT
    span, max(n), max(took) FILTER (WHERE place = (n + 1) / 2), max(took) FILTER (WHERE place = (n * 99 + 99) / 100)
FROM ranked GROUP BY span;

-- name: given_up
-- How many sends were given up in each span of time.
SELECT at / :span_ms, count(*) FROM (
    SELECT at FROM event INDEXED BY event_of_the_dead
    WHERE type = 'outbox_dead' AND at >= :since ORDER BY at DESC LIMIT :most
) GROUP BY 1;
