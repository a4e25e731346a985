-- The hub's store. Times are wall milliseconds.

-- What the hub knows of itself.
CREATE TABLE hub_state (
  name TEXT PRIMARY KEY,
  value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Which store this is, for as long as it lives: a copy of its rows says whose they are.
INSERT INTO hub_state (name, value) VALUES ('store_id', CAST(lower(hex(randomblob(8))) AS BLOB));

-- Rows as they stand. `seq` is the place in the journal at which the row was made.
CREATE TABLE entity (
  kind TEXT NOT NULL CHECK (kind IN ('progress', 'messages', 'token_events', 'decisions', 'tasks', 'workplans')),
  id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  revision INTEGER NOT NULL CHECK (revision > 0),
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL CHECK (updated_at >= created_at),
  fields TEXT NOT NULL,
  PRIMARY KEY (kind, id)
) STRICT;

CREATE UNIQUE INDEX entity_in_order ON entity (kind, seq);

-- Every write that changed something, in the order of their commits, without gaps. A row's lines are a chain: each
-- begins at the revision that the one before it made.
CREATE TABLE hub_write (
  seq INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  kind TEXT NOT NULL,
  entity_id TEXT NOT NULL,
  base_revision INTEGER NOT NULL CHECK (base_revision >= 0),
  revision INTEGER NOT NULL CHECK (revision = base_revision + 1),
  method TEXT NOT NULL,
  path TEXT NOT NULL,
  idempotency_key TEXT,
  source_host TEXT,
  source_agent TEXT,
  expectation TEXT,
  fields TEXT NOT NULL,
  deleted INTEGER NOT NULL CHECK (deleted IN (0, 1))
) STRICT;

CREATE UNIQUE INDEX hub_write_chain ON hub_write (kind, entity_id, revision);

CREATE TRIGGER hub_write_append_only_update BEFORE UPDATE ON hub_write
BEGIN
  SELECT RAISE(ABORT, 'append-only: hub_write takes no UPDATE');
END;

CREATE TRIGGER hub_write_append_only_delete BEFORE DELETE ON hub_write
BEGIN
  SELECT RAISE(ABORT, 'append-only: hub_write takes no DELETE');
END;

-- INSERT OR REPLACE deletes without a word to the trigger above.
CREATE TRIGGER hub_write_append_only_insert BEFORE INSERT ON hub_write
WHEN EXISTS (SELECT 1 FROM hub_write WHERE seq = NEW.seq)
  OR EXISTS (
    SELECT 1 FROM hub_write WHERE kind = NEW.kind AND entity_id = NEW.entity_id AND revision = NEW.revision
  )
BEGIN
  SELECT RAISE(ABORT, 'append-only: hub_write has such a line, and it is not replaced');
END;

-- How many rows stand, so that nobody has to count them. A kind without a status has the empty one.
CREATE TABLE hub_tally (
  kind TEXT NOT NULL,
  status TEXT NOT NULL,
  rows INTEGER NOT NULL CHECK (rows >= 0),
  PRIMARY KEY (kind, status)
) STRICT, WITHOUT ROWID;
