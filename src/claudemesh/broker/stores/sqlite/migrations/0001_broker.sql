-- The broker's store. Meshes and members go by small numbers inside (`id`) and by ULIDs outside (`uid`).
-- The hot tables have no foreign keys: every row of theirs is written by one operation, and the orphan check reads
-- all of them. Times are wall milliseconds unless a comment says otherwise.

-- What the broker knows of itself: its key, its lease clock.
CREATE TABLE broker_state (
  name TEXT PRIMARY KEY,
  value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Which store this is, for as long as it lives: a copy of its rows says whose they are.
INSERT INTO broker_state (name, value) VALUES ('store_id', CAST(lower(hex(randomblob(8))) AS BLOB));

CREATE TABLE mesh (
  id INTEGER PRIMARY KEY,
  uid TEXT NOT NULL UNIQUE,
  slug TEXT NOT NULL,
  owner_pubkey TEXT NOT NULL,
  policy TEXT NOT NULL DEFAULT 'prefer_newest'
    CHECK (policy IN ('prefer_newest', 'prefer_oldest', 'allow_concurrent')),
  sends_per_window INTEGER CHECK (sends_per_window > 0),
  created_at INTEGER NOT NULL,
  UNIQUE (slug, owner_pubkey)
) STRICT;

-- The next history id of a mesh is one more than this. Taken last in an accept.
CREATE TABLE history_counter (
  mesh_id INTEGER PRIMARY KEY REFERENCES mesh (id),
  history_id INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Numbers that were passed over when an epoch began, since a lost part of the past may have used them.
CREATE TABLE history_jump (
  mesh_id INTEGER NOT NULL REFERENCES mesh (id),
  after_history_id INTEGER NOT NULL,
  skipped INTEGER NOT NULL CHECK (skipped > 0),
  epoch INTEGER NOT NULL,
  begun_at INTEGER NOT NULL,
  PRIMARY KEY (mesh_id, after_history_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE member (
  id INTEGER PRIMARY KEY,
  uid TEXT NOT NULL UNIQUE,
  mesh_id INTEGER NOT NULL REFERENCES mesh (id),
  pubkey TEXT NOT NULL,
  name TEXT NOT NULL,
  name_folded TEXT NOT NULL,
  role TEXT NOT NULL CHECK (role IN ('owner', 'admin', 'member')),
  about TEXT NOT NULL DEFAULT '',  -- what the member says of itself
  joined_at INTEGER NOT NULL,
  revoked_at INTEGER,
  last_read_at INTEGER,  -- when it last marked a message as read
  UNIQUE (mesh_id, pubkey),
  UNIQUE (mesh_id, name_folded)  -- for good: what a revoked member sent must not look like somebody else's
) STRICT;

-- Every key that leads to a member: the one in force, retired ones, and those of its sessions, also ended ones for as
-- long as their leases are kept.
CREATE TABLE member_key (
  mesh_id INTEGER NOT NULL,
  pubkey TEXT NOT NULL,
  member_id INTEGER NOT NULL REFERENCES member (id),
  kind TEXT NOT NULL CHECK (kind IN ('member', 'retired', 'session')),
  added_at INTEGER NOT NULL,
  PRIMARY KEY (mesh_id, pubkey)
) STRICT, WITHOUT ROWID;

-- Who joined by which invite: it counts the uses, and a second redeem by the same key finds itself here.
CREATE TABLE invite_use (
  mesh_id INTEGER NOT NULL REFERENCES mesh (id),
  invite_id TEXT NOT NULL,
  member_id INTEGER NOT NULL REFERENCES member (id),
  used_at INTEGER NOT NULL,
  PRIMARY KEY (mesh_id, invite_id, member_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE topic (
  id INTEGER PRIMARY KEY,
  mesh_id INTEGER NOT NULL REFERENCES mesh (id),
  name TEXT NOT NULL,
  created_by INTEGER NOT NULL REFERENCES member (id),
  created_at INTEGER NOT NULL,
  UNIQUE (mesh_id, name)
) STRICT;

-- A row stays when the subscription ends: it tells where to look for the deliveries of old messages.
CREATE TABLE topic_subscription (
  topic_id INTEGER NOT NULL REFERENCES topic (id),
  member_id INTEGER NOT NULL REFERENCES member (id),
  after_history_id INTEGER NOT NULL,
  ended_at INTEGER,
  PRIMARY KEY (topic_id, member_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE queue (
  id INTEGER PRIMARY KEY,
  mesh_id INTEGER NOT NULL REFERENCES mesh (id),
  name TEXT NOT NULL,
  created_by INTEGER NOT NULL REFERENCES member (id),
  created_at INTEGER NOT NULL,
  UNIQUE (mesh_id, name)
) STRICT;

-- --- what one accept writes: all of it, or none ---

-- An id that was used, by its sender. A retired one was given up before it was accepted, and has no message.
CREATE TABLE client_message_dedupe (
  sender_id INTEGER NOT NULL,
  client_message_id TEXT NOT NULL,
  mesh_id INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('accepted', 'retired')),
  request_fingerprint BLOB,
  broker_message_id TEXT,
  history_id INTEGER,
  history_available INTEGER NOT NULL,
  first_seen_at INTEGER NOT NULL,
  expires_at INTEGER,
  PRIMARY KEY (sender_id, client_message_id),
  CHECK ((state = 'accepted') = (request_fingerprint IS NOT NULL AND broker_message_id IS NOT NULL
    AND history_id IS NOT NULL))
) STRICT, WITHOUT ROWID;

-- The order of a mesh: gapless, as committed.
CREATE TABLE message_history (
  mesh_id INTEGER NOT NULL,
  history_id INTEGER NOT NULL,
  broker_message_id TEXT NOT NULL UNIQUE,
  sender_id INTEGER NOT NULL,
  client_message_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  accepted_at INTEGER NOT NULL,
  sender_seq INTEGER,
  PRIMARY KEY (mesh_id, history_id)
) STRICT, WITHOUT ROWID;

-- Bodies are in tables with row ids: rows of a kilobyte and more do badly without.
CREATE TABLE topic_message (
  id INTEGER PRIMARY KEY,
  mesh_id INTEGER NOT NULL,
  history_id INTEGER NOT NULL,
  topic_id INTEGER NOT NULL,
  reply_to TEXT NOT NULL,
  priority TEXT NOT NULL,
  meta TEXT NOT NULL,
  encoding TEXT NOT NULL,
  body TEXT NOT NULL,
  UNIQUE (mesh_id, history_id)
) STRICT;

-- Messages to one: to a member (dm) or to a queue.
CREATE TABLE message_queue (
  id INTEGER PRIMARY KEY,
  mesh_id INTEGER NOT NULL,
  history_id INTEGER NOT NULL,
  recipient_id INTEGER,
  queue_id INTEGER,
  ref TEXT NOT NULL,
  to_session TEXT,
  reply_to TEXT NOT NULL,
  priority TEXT NOT NULL,
  meta TEXT NOT NULL,
  encoding TEXT NOT NULL,
  body TEXT NOT NULL,
  UNIQUE (mesh_id, history_id),
  CHECK ((recipient_id IS NULL) <> (queue_id IS NULL))
) STRICT;

-- One row for each recipient, and its receipt: the state is what the times say, so that the two cannot differ.
-- Recipient 0 is nobody: the one row of a queue's message. A mark set before the delivery (a reply from another
-- daemon of the same member) does not close it: only the ack of the inbox does.
CREATE TABLE delivery_queue (
  mesh_id INTEGER NOT NULL,
  history_id INTEGER NOT NULL,
  recipient_id INTEGER NOT NULL,
  delivered_at INTEGER,
  read_at INTEGER,
  acted_at INTEGER,
  dead_at INTEGER,
  dead_reason TEXT,
  attempts INTEGER NOT NULL DEFAULT 0,
  state TEXT NOT NULL GENERATED ALWAYS AS (
    CASE
      WHEN dead_at IS NOT NULL THEN 'dead_letter'
      WHEN delivered_at IS NULL THEN 'accepted'
      WHEN acted_at IS NOT NULL THEN 'acted'
      WHEN read_at IS NOT NULL THEN 'read'
      ELSE 'delivered'
    END
  ) VIRTUAL,
  PRIMARY KEY (mesh_id, history_id, recipient_id)
) STRICT, WITHOUT ROWID;

-- What happened to deliveries, in its order: the rows above change, and whoever copies them must not miss what they
-- said in between. Of a message that is kept all of it is here. `at` is when, by the clock that the delivery shows;
-- a return has none, and shows the machine's. Numbers are not used twice, also when the last ones are gone.
CREATE TABLE delivery_event (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  mesh_id INTEGER NOT NULL,
  history_id INTEGER NOT NULL,
  recipient_id INTEGER NOT NULL,
  what TEXT NOT NULL,  -- as the trigger below has it
  at INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  reason TEXT
) STRICT;

-- Whatever statement changes a delivery. A letter that is dead is no return as well.
CREATE TRIGGER note_delivery_events AFTER UPDATE OF delivered_at, read_at, acted_at, dead_at ON delivery_queue
WHEN (OLD.delivered_at IS NULL) <> (NEW.delivered_at IS NULL) OR (OLD.read_at IS NULL AND NEW.read_at IS NOT NULL)
  OR (OLD.acted_at IS NULL AND NEW.acted_at IS NOT NULL) OR (OLD.dead_at IS NULL AND NEW.dead_at IS NOT NULL)
BEGIN
  INSERT INTO delivery_event (mesh_id, history_id, recipient_id, what, at, attempts)
  SELECT NEW.mesh_id, NEW.history_id, NEW.recipient_id, 'delivered', NEW.delivered_at, NEW.attempts
  WHERE OLD.delivered_at IS NULL AND NEW.delivered_at IS NOT NULL;
  INSERT INTO delivery_event (mesh_id, history_id, recipient_id, what, at, attempts)
  SELECT NEW.mesh_id, NEW.history_id, NEW.recipient_id, 'read', NEW.read_at, NEW.attempts
  WHERE OLD.read_at IS NULL AND NEW.read_at IS NOT NULL;
  INSERT INTO delivery_event (mesh_id, history_id, recipient_id, what, at, attempts)
  SELECT NEW.mesh_id, NEW.history_id, NEW.recipient_id, 'acted', NEW.acted_at, NEW.attempts
  WHERE OLD.acted_at IS NULL AND NEW.acted_at IS NOT NULL;
  INSERT INTO delivery_event (mesh_id, history_id, recipient_id, what, at, attempts)
  SELECT NEW.mesh_id, NEW.history_id, NEW.recipient_id, 'returned', round(unixepoch('subsec') * 1000), NEW.attempts
  WHERE OLD.delivered_at IS NOT NULL AND NEW.delivered_at IS NULL AND OLD.dead_at IS NULL AND NEW.dead_at IS NULL;
  INSERT INTO delivery_event (mesh_id, history_id, recipient_id, what, at, attempts, reason)
  SELECT NEW.mesh_id, NEW.history_id, NEW.recipient_id, 'dead', NEW.dead_at, NEW.attempts, NEW.dead_reason
  WHERE OLD.dead_at IS NULL AND NEW.dead_at IS NOT NULL;
END;

-- What waits for a member: one bit for each history id, a block of them in a row, gone when it is empty. An index on
-- the open deliveries would say the same, and cost a fifth of all accepts: this is one write for each recipient and
-- block, however many messages a transaction holds. The orphan check compares the two.
CREATE TABLE delivery_open (
  recipient_id INTEGER NOT NULL,
  block INTEGER NOT NULL,
  bits INTEGER NOT NULL,
  PRIMARY KEY (recipient_id, block)
) STRICT, WITHOUT ROWID;

CREATE TABLE mention_index (
  mesh_id INTEGER NOT NULL,
  mentioned TEXT NOT NULL,
  history_id INTEGER NOT NULL,
  PRIMARY KEY (mesh_id, history_id, mentioned)
) STRICT, WITHOUT ROWID;

CREATE INDEX mention_index_mentioned ON mention_index (mesh_id, mentioned, history_id);

-- --- work queues ---

-- The lease of a queue's message, from its accept on. Instants are of the broker's lease clock, which stands still
-- while no broker runs and knows no steps. The token outlives the lease: it only grows.
CREATE TABLE queue_lease (
  mesh_id INTEGER NOT NULL,
  history_id INTEGER NOT NULL,
  queue_id INTEGER NOT NULL,
  owner_id INTEGER,
  token INTEGER NOT NULL DEFAULT 0,
  expires_at INTEGER NOT NULL DEFAULT 0,
  returns INTEGER NOT NULL DEFAULT 0,
  is_settled INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (mesh_id, history_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX queue_lease_ready ON queue_lease (queue_id, history_id) WHERE owner_id IS NULL AND is_settled = 0;
CREATE INDEX queue_lease_held ON queue_lease (queue_id, expires_at) WHERE owner_id IS NOT NULL AND is_settled = 0;

-- --- presence ---

-- A lease: somebody is there, whatever socket carries it. Under a key that '' stands for the member's own. While a
-- seat carries it there is no instant at which it ends; without one it ends at `lease_until`, of the lease clock. An
-- ended one stays as a record. `info` is what a session says of itself, and goes with it.
CREATE TABLE presence (
  id INTEGER PRIMARY KEY,
  uid TEXT NOT NULL UNIQUE,
  mesh_id INTEGER NOT NULL,
  member_id INTEGER NOT NULL,
  session_pubkey TEXT NOT NULL,
  instance_id TEXT NOT NULL,
  presence_only INTEGER NOT NULL CHECK (presence_only IN (0, 1)),
  token INTEGER NOT NULL CHECK (token > 0),
  seat INTEGER,
  lease_until INTEGER,
  info TEXT NOT NULL,
  connected_at INTEGER NOT NULL,
  disconnected_at INTEGER,
  CHECK (seat IS NULL OR disconnected_at IS NULL),
  CHECK (disconnected_at IS NOT NULL OR (seat IS NULL) = (lease_until IS NOT NULL))
) STRICT;

CREATE UNIQUE INDEX presence_open ON presence (member_id, session_pubkey, instance_id) WHERE disconnected_at IS NULL;
CREATE INDEX presence_mesh ON presence (mesh_id) WHERE disconnected_at IS NULL;
CREATE UNIQUE INDEX presence_seat ON presence (seat) WHERE seat IS NOT NULL;
CREATE INDEX presence_due ON presence (lease_until) WHERE disconnected_at IS NULL AND lease_until IS NOT NULL;
CREATE INDEX presence_ended ON presence (disconnected_at) WHERE disconnected_at IS NOT NULL;
CREATE INDEX presence_session ON presence (mesh_id, session_pubkey) WHERE session_pubkey <> '';

-- The number of the last one in a mesh who came or went: gapless, as committed.
CREATE TABLE presence_counter (
  mesh_id INTEGER PRIMARY KEY,
  seq INTEGER NOT NULL
) STRICT;

-- What happened to leases, in its order. Who came and who went has a `seq`, and is announced; the rest is for who
-- looks into it later. `at` is wall time that knows no steps within a broker's run.
CREATE TABLE presence_event (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  mesh_id INTEGER NOT NULL,
  member_id INTEGER NOT NULL,
  session_pubkey TEXT NOT NULL,
  presence_uid TEXT NOT NULL,
  what TEXT NOT NULL CHECK (what IN ('joined', 'left', 'begun', 'ended', 'offline', 'online', 'swapped')),
  at INTEGER NOT NULL,
  because TEXT,
  seq INTEGER,
  CHECK ((seq IS NOT NULL) = (what IN ('joined', 'left')))
) STRICT;

CREATE UNIQUE INDEX presence_event_seq ON presence_event (mesh_id, seq) WHERE seq IS NOT NULL;

-- What an inbox holds and nobody has marked as read.
CREATE INDEX delivery_unread ON delivery_queue (recipient_id)
WHERE delivered_at IS NOT NULL AND read_at IS NULL AND acted_at IS NULL AND dead_at IS NULL;

-- --- retention ---

-- What was deleted, for those who copied it before.
CREATE TABLE tombstone (
  id INTEGER PRIMARY KEY,
  what TEXT NOT NULL CHECK (what IN ('message', 'dedupe')),
  mesh_id INTEGER NOT NULL,
  sender_id INTEGER NOT NULL,
  client_message_id TEXT NOT NULL,
  broker_message_id TEXT,
  history_id INTEGER,
  deleted_at INTEGER NOT NULL
) STRICT;

-- Accepted ids are swept in the order of their messages' tombstones; only retired ones have to be looked for.
CREATE INDEX client_message_dedupe_retired ON client_message_dedupe (expires_at) WHERE state = 'retired';

-- --- the pipeline ---

-- Accepted ids, in the order of their messages.
CREATE INDEX client_message_dedupe_accepted ON client_message_dedupe (mesh_id, history_id) WHERE state = 'accepted';
