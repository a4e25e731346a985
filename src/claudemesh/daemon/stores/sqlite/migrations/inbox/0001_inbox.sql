-- Everything that this daemon tells its readers, in the order it happened. An inbox row has the number of its event,
-- so one cursor serves paging and streams alike.
CREATE TABLE event (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    type TEXT NOT NULL,
    at INTEGER NOT NULL,
    data TEXT -- JSON; null for a message, whose row says it all
) STRICT;

CREATE TABLE inbox (
    seq INTEGER PRIMARY KEY REFERENCES event (seq),
    sender_id TEXT NOT NULL,
    client_message_id TEXT NOT NULL,
    broker_message_id TEXT NOT NULL,
    history_id INTEGER NOT NULL,
    sender_pubkey TEXT NOT NULL,
    sender_name TEXT NOT NULL,
    topic TEXT, -- null for a direct message
    body TEXT NOT NULL,
    meta TEXT, -- JSON
    priority TEXT NOT NULL,
    reply_to TEXT NOT NULL,
    to_session TEXT,
    accepted_at INTEGER NOT NULL,
    received_at INTEGER NOT NULL,
    read_at INTEGER, -- when its reader marked it
    read_told INTEGER NOT NULL DEFAULT 0 CHECK (read_told IN (0, 1)), -- whether the broker knows of the mark
    UNIQUE (sender_id, client_message_id)
) STRICT;

-- Ids of messages that are no longer kept: the broker may still deliver one again.
CREATE TABLE inbox_tombstone (
    sender_id TEXT NOT NULL,
    client_message_id TEXT NOT NULL,
    swept_at INTEGER NOT NULL,
    PRIMARY KEY (sender_id, client_message_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX inbox_by_broker_id ON inbox (broker_message_id);
CREATE INDEX inbox_unread ON inbox (seq, priority, read_at) WHERE read_at IS NULL;
CREATE INDEX inbox_unread_of ON inbox (to_session) WHERE to_session IS NOT NULL AND read_at IS NULL;
CREATE INDEX inbox_untold ON inbox (seq) WHERE read_at IS NOT NULL AND read_told = 0;

-- The words of the bodies, kept by the store itself; the bodies stand in the inbox. Nothing is ranked, so no sizes.
CREATE VIRTUAL TABLE inbox_words USING fts5 (body, content = 'inbox', content_rowid = 'seq', columnsize = 0);

-- `epoch` marks this very file: a cursor of another one is told so.
CREATE TABLE remembered (
    name TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO remembered (name, value) VALUES ('epoch', lower(hex(randomblob(8))));
