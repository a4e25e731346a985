-- name: create
-- The number of a document is its place in the order they were received. The words are cut as in the inbox's own
-- index; nothing is ranked, so no sizes.
CREATE TABLE document (
    id INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    client_message_id TEXT NOT NULL,
    broker_message_id TEXT NOT NULL,
    history_id INTEGER NOT NULL,
    sender_pubkey TEXT NOT NULL,
    sender_name TEXT NOT NULL,
    topic TEXT,
    priority TEXT NOT NULL,
    accepted_at INTEGER NOT NULL,
    received_at INTEGER NOT NULL,
    body TEXT NOT NULL,
    meta TEXT,
    reply_to TEXT NOT NULL
) STRICT;
CREATE VIRTUAL TABLE words USING fts5 (body, content = 'document', content_rowid = 'id', columnsize = 0);

-- name: insert
-- The next one.
INSERT INTO document (
    seq, client_message_id, broker_message_id, history_id, sender_pubkey, sender_name, topic, priority, accepted_at,
    received_at, body, meta, reply_to
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: index_words
-- Of all documents at once, and in one piece, since nothing is added later.
INSERT INTO words (words) VALUES ('rebuild');
INSERT INTO words (words) VALUES ('optimize');

-- name: last
-- Its place is their number.
SELECT id, received_at FROM document ORDER BY id DESC LIMIT 1;

-- name: search
-- Those that hold all the words, after one that was shown.
SELECT
    seq, client_message_id, broker_message_id, history_id, sender_pubkey, sender_name, topic, priority, accepted_at,
    received_at, document.body, meta, reply_to
FROM words JOIN document ON document.id = words.rowid
WHERE words MATCH :words AND (received_at, seq) > (:received_at, :seq)
ORDER BY words.rowid LIMIT :limit;
