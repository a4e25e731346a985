-- The broker's store. Meshes and members go by small numbers inside (`id`) and by ULIDs outside (`uid`).
-- The hot tables have no foreign keys: every row of theirs is written by one operation, and the orphan check reads
-- all of them. Times are wall milliseconds of the brokers, unless a comment says that they are the server's own.
-- Keys compare by their bytes (COLLATE "C"): a language's rules would be slow, and may change with the system.

-- The server's own time: leases are judged by it, whatever the clocks of the brokers say.
CREATE FUNCTION mesh.now_ms() RETURNS bigint LANGUAGE sql VOLATILE
RETURN (extract(epoch FROM clock_timestamp()) * 1000)::bigint;

-- What all brokers of this database know: their key, how far a sweep came, which server this was.
CREATE TABLE mesh.broker_state (
  name text PRIMARY KEY,
  value bytea NOT NULL
);

-- Which store this is, for as long as it lives: a copy of its rows says whose they are.
INSERT INTO mesh.broker_state (name, value)
VALUES ('store_id', convert_to(right(replace(gen_random_uuid()::text, '-', ''), 16), 'UTF8'));

CREATE TABLE mesh.mesh (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  uid text COLLATE "C" NOT NULL UNIQUE,
  slug text COLLATE "C" NOT NULL,
  owner_pubkey text COLLATE "C" NOT NULL,
  policy text NOT NULL DEFAULT 'prefer_newest'
    CHECK (policy IN ('prefer_newest', 'prefer_oldest', 'allow_concurrent')),
  sends_per_window bigint CHECK (sends_per_window > 0),
  created_at bigint NOT NULL,
  UNIQUE (slug, owner_pubkey)
);

-- The next history id of a mesh is one more than this. Taken last in an accept, and held until its commit: so ids
-- become visible in their order. Whatever changes who gets a message takes it too.
CREATE TABLE mesh.history_counter (
  mesh_id bigint PRIMARY KEY REFERENCES mesh.mesh (id),
  history_id bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10); -- updated by every accept: the versions of a row find room beside it

-- Numbers that were passed over when an epoch began, since a lost part of the past may have used them.
CREATE TABLE mesh.history_jump (
  mesh_id bigint NOT NULL REFERENCES mesh.mesh (id),
  after_history_id bigint NOT NULL,
  skipped bigint NOT NULL CHECK (skipped > 0),
  epoch bigint NOT NULL,
  begun_at bigint NOT NULL,
  PRIMARY KEY (mesh_id, after_history_id)
);

CREATE TABLE mesh.member (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  uid text COLLATE "C" NOT NULL UNIQUE,
  mesh_id bigint NOT NULL REFERENCES mesh.mesh (id),
  pubkey text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  name_folded text COLLATE "C" NOT NULL,
  role text NOT NULL CHECK (role IN ('owner', 'admin', 'member')),
  about text NOT NULL DEFAULT '', -- what the member says of itself
  joined_at bigint NOT NULL,
  revoked_at bigint,
  last_read_at bigint, -- when it last marked a message as read
  UNIQUE (mesh_id, pubkey),
  UNIQUE (mesh_id, name_folded) -- for good: what a revoked member sent must not look like somebody else's
);

-- Every key that leads to a member: the one in force, retired ones, and those of its sessions, also ended ones for as
-- long as their leases are kept.
CREATE TABLE mesh.member_key (
  mesh_id bigint NOT NULL,
  pubkey text COLLATE "C" NOT NULL,
  member_id bigint NOT NULL REFERENCES mesh.member (id),
  kind text NOT NULL CHECK (kind IN ('member', 'retired', 'session')),
  added_at bigint NOT NULL,
  PRIMARY KEY (mesh_id, pubkey)
);

-- Who joined by which invite: it counts the uses, and a second redeem by the same key finds itself here.
CREATE TABLE mesh.invite_use (
  mesh_id bigint NOT NULL REFERENCES mesh.mesh (id),
  invite_id text COLLATE "C" NOT NULL,
  member_id bigint NOT NULL REFERENCES mesh.member (id),
  used_at bigint NOT NULL,
  PRIMARY KEY (mesh_id, invite_id, member_id)
);

CREATE TABLE mesh.topic (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  mesh_id bigint NOT NULL REFERENCES mesh.mesh (id),
  name text COLLATE "C" NOT NULL,
  created_by bigint NOT NULL REFERENCES mesh.member (id),
  created_at bigint NOT NULL,
  UNIQUE (mesh_id, name)
);

CREATE TABLE mesh.topic_subscription (
  topic_id bigint NOT NULL REFERENCES mesh.topic (id),
  member_id bigint NOT NULL REFERENCES mesh.member (id),
  after_history_id bigint NOT NULL,
  ended_at bigint,
  PRIMARY KEY (topic_id, member_id)
);

CREATE TABLE mesh.queue (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  mesh_id bigint NOT NULL REFERENCES mesh.mesh (id),
  name text COLLATE "C" NOT NULL,
  created_by bigint NOT NULL REFERENCES mesh.member (id),
  created_at bigint NOT NULL,
  UNIQUE (mesh_id, name)
);

-- --- what one accept writes: all of it, or none ---

-- An id that was used, by its sender. A retired one was given up before it was accepted, and has no message. The
-- history id is written here when the message goes; until then its history row says it: an accept claims its id
-- before it knows the number, and would otherwise have to write this row twice.
CREATE TABLE mesh.client_message_dedupe (
  sender_id bigint NOT NULL,
  client_message_id text COLLATE "C" NOT NULL,
  mesh_id bigint NOT NULL,
  state text NOT NULL CHECK (state IN ('accepted', 'retired')),
  request_fingerprint bytea,
  broker_message_id text COLLATE "C",
  history_id bigint,
  history_available boolean NOT NULL,
  first_seen_at bigint NOT NULL,
  expires_at bigint,
  commit_xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  PRIMARY KEY (sender_id, client_message_id),
  CHECK ((state = 'accepted') = (request_fingerprint IS NOT NULL AND broker_message_id IS NOT NULL)),
  CHECK (state = 'retired' OR history_available = (history_id IS NULL))
);

-- The order of a mesh: gapless, as committed.
CREATE TABLE mesh.message_history (
  mesh_id bigint NOT NULL,
  history_id bigint NOT NULL,
  broker_message_id text COLLATE "C" NOT NULL UNIQUE,
  sender_id bigint NOT NULL,
  client_message_id text COLLATE "C" NOT NULL,
  kind text NOT NULL,
  accepted_at bigint NOT NULL,
  sender_seq bigint,
  commit_xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  PRIMARY KEY (mesh_id, history_id)
);

CREATE TABLE mesh.topic_message (
  mesh_id bigint NOT NULL,
  history_id bigint NOT NULL,
  topic_id bigint NOT NULL,
  reply_to text NOT NULL,
  priority text NOT NULL,
  meta text NOT NULL,
  encoding text NOT NULL,
  body text NOT NULL,
  commit_xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  PRIMARY KEY (mesh_id, history_id)
);

-- Messages to one: to a member (dm) or to a queue.
CREATE TABLE mesh.message_queue (
  mesh_id bigint NOT NULL,
  history_id bigint NOT NULL,
  recipient_id bigint,
  queue_id bigint,
  ref text NOT NULL,
  to_session text COLLATE "C",
  reply_to text NOT NULL,
  priority text NOT NULL,
  meta text NOT NULL,
  encoding text NOT NULL,
  body text NOT NULL,
  commit_xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  PRIMARY KEY (mesh_id, history_id),
  CHECK ((recipient_id IS NULL) <> (queue_id IS NULL))
);

-- One row for each recipient, and its receipt: the state is what the times say (`delivery`), so that the two cannot
-- differ. Recipient 0 is nobody: the one row of a queue's message. A mark set before the delivery (a reply from
-- another daemon of the same member) does not close it: only the ack of the inbox does.
CREATE TABLE mesh.delivery_queue (
  mesh_id bigint NOT NULL,
  history_id bigint NOT NULL,
  recipient_id bigint NOT NULL,
  attempts integer NOT NULL DEFAULT 0,
  delivered_at bigint,
  read_at bigint,
  acted_at bigint,
  dead_at bigint,
  dead_reason text,
  to_session text COLLATE "C", -- the session that the sender named
  commit_xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  PRIMARY KEY (mesh_id, history_id, recipient_id)
);

-- What waits for a member, in order.
CREATE INDEX delivery_open ON mesh.delivery_queue (recipient_id, history_id)
WHERE delivered_at IS NULL AND dead_at IS NULL;

CREATE VIEW mesh.delivery AS
SELECT *,
  CASE
    WHEN dead_at IS NOT NULL THEN 'dead_letter'
    WHEN delivered_at IS NULL THEN 'accepted'
    WHEN acted_at IS NOT NULL THEN 'acted'
    WHEN read_at IS NOT NULL THEN 'read'
    ELSE 'delivered'
  END AS state
FROM mesh.delivery_queue;

-- What happened to deliveries, in its order: the rows above change, and whoever copies them must not miss what they
-- said in between. Of a message that is kept all of it is here. `at` is when, by the clock that the delivery shows;
-- a return has none, and shows the server's.
CREATE TABLE mesh.delivery_event (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  mesh_id bigint NOT NULL,
  history_id bigint NOT NULL,
  recipient_id bigint NOT NULL,
  what text NOT NULL, -- as the trigger below has it
  at bigint NOT NULL,
  attempts integer NOT NULL,
  reason text,
  commit_xid xid8 NOT NULL DEFAULT pg_current_xact_id()
);

-- Whatever statement changes a delivery. A letter that is dead is no return as well.
CREATE FUNCTION mesh.note_delivery_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO mesh.delivery_event (mesh_id, history_id, recipient_id, what, at, attempts, reason)
  WITH changed AS NOT MATERIALIZED ( -- so that each part below joins no more than it needs
    SELECT n.*, o.delivered_at AS was_delivered, o.read_at AS was_read, o.acted_at AS was_acted, o.dead_at AS was_dead
    FROM before AS o JOIN after AS n USING (mesh_id, history_id, recipient_id)
  ), happened AS (
    SELECT 1 AS place, mesh_id, history_id, recipient_id, 'delivered' AS what, delivered_at AS at, attempts,
      NULL AS reason
    FROM changed WHERE was_delivered IS NULL AND delivered_at IS NOT NULL
    UNION ALL
    SELECT 2, mesh_id, history_id, recipient_id, 'read', read_at, attempts, NULL
    FROM changed WHERE was_read IS NULL AND read_at IS NOT NULL
    UNION ALL
    SELECT 3, mesh_id, history_id, recipient_id, 'acted', acted_at, attempts, NULL
    FROM changed WHERE was_acted IS NULL AND acted_at IS NOT NULL
    UNION ALL
    SELECT 4, mesh_id, history_id, recipient_id, 'returned', mesh.now_ms(), attempts, NULL
    FROM changed WHERE was_delivered IS NOT NULL AND delivered_at IS NULL AND was_dead IS NULL AND dead_at IS NULL
    UNION ALL
    SELECT 5, mesh_id, history_id, recipient_id, 'dead', dead_at, attempts, dead_reason
    FROM changed WHERE was_dead IS NULL AND dead_at IS NOT NULL
  )
  SELECT mesh_id, history_id, recipient_id, what, at, attempts, reason FROM happened ORDER BY place;
  RETURN NULL;
END $$;

CREATE TRIGGER note_delivery_events AFTER UPDATE ON mesh.delivery_queue
REFERENCING OLD TABLE AS before NEW TABLE AS after
FOR EACH STATEMENT EXECUTE FUNCTION mesh.note_delivery_events();

CREATE TABLE mesh.mention_index (
  mesh_id bigint NOT NULL,
  mentioned text COLLATE "C" NOT NULL,
  history_id bigint NOT NULL,
  commit_xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  PRIMARY KEY (mesh_id, history_id, mentioned)
);

CREATE INDEX mention_index_mentioned ON mesh.mention_index (mesh_id, mentioned, history_id);

-- --- work queues ---

-- The lease of a queue's message, from its accept on; instants are the server's. The token outlives the lease: it
-- only grows.
CREATE TABLE mesh.queue_lease (
  mesh_id bigint NOT NULL,
  history_id bigint NOT NULL,
  queue_id bigint NOT NULL,
  owner_id bigint,
  token bigint NOT NULL DEFAULT 0,
  expires_at bigint NOT NULL DEFAULT 0,
  returns integer NOT NULL DEFAULT 0,
  is_settled boolean NOT NULL DEFAULT false,
  commit_xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  PRIMARY KEY (mesh_id, history_id)
);

CREATE INDEX queue_lease_ready ON mesh.queue_lease (queue_id, history_id) WHERE owner_id IS NULL AND NOT is_settled;
CREATE INDEX queue_lease_held ON mesh.queue_lease (expires_at) WHERE owner_id IS NOT NULL AND NOT is_settled;

-- --- several brokers ---

-- The brokers that run on this database. One that does not beat in time is taken for dead, with its seats.
CREATE TABLE mesh.broker (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  expires_at bigint NOT NULL -- the server's time
);

-- Which connection gets what waits for a key: of one key the seat with the greatest token, of those that get anything
-- at all. A seat is its broker's, and goes with it. `session_pubkey` is '' for the member's own connection.
CREATE TABLE mesh.seat (
  token bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  broker_id bigint NOT NULL REFERENCES mesh.broker (id) ON DELETE CASCADE,
  member_id bigint NOT NULL,
  session_pubkey text COLLATE "C" NOT NULL,
  presence_only boolean NOT NULL
);

CREATE INDEX seat_key ON mesh.seat (member_id, session_pubkey, token);
CREATE INDEX seat_broker ON mesh.seat (broker_id);

-- The one of the brokers that does what has to be done once: sweeps, checks, leases that ran out.
CREATE TABLE mesh.keeper (
  only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
  broker_id bigint NOT NULL,
  expires_at bigint NOT NULL -- the server's time
);

-- --- presence ---

-- A lease: somebody is there, whatever socket carries it. Under a key that '' stands for the member's own. While a
-- seat carries it there is no instant at which it ends, as long as the seat's broker lives; without one it ends at
-- `lease_until`. Instants are the server's. An ended one stays as a record. `info` is what a session says of itself, and
-- goes with it. Whoever begins or ends leases of a member holds the member's row.
CREATE TABLE mesh.presence (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  uid text COLLATE "C" NOT NULL UNIQUE,
  mesh_id bigint NOT NULL,
  member_id bigint NOT NULL,
  session_pubkey text COLLATE "C" NOT NULL,
  instance_id text COLLATE "C" NOT NULL,
  presence_only boolean NOT NULL,
  token bigint NOT NULL CHECK (token > 0),
  seat bigint,
  broker_id bigint, -- that gave the seat
  lease_until bigint,
  info text NOT NULL,
  connected_at bigint NOT NULL,
  disconnected_at bigint,
  CHECK (seat IS NULL OR disconnected_at IS NULL),
  CHECK ((seat IS NULL) = (broker_id IS NULL)),
  CHECK (disconnected_at IS NOT NULL OR (seat IS NULL) = (lease_until IS NOT NULL))
);

CREATE UNIQUE INDEX presence_open ON mesh.presence (member_id, session_pubkey, instance_id)
WHERE disconnected_at IS NULL;
CREATE INDEX presence_mesh ON mesh.presence (mesh_id, id) WHERE disconnected_at IS NULL;
CREATE UNIQUE INDEX presence_seat ON mesh.presence (seat) WHERE seat IS NOT NULL;
CREATE INDEX presence_broker ON mesh.presence (broker_id) WHERE broker_id IS NOT NULL;
CREATE INDEX presence_due ON mesh.presence (lease_until) WHERE disconnected_at IS NULL AND lease_until IS NOT NULL;
CREATE INDEX presence_ended ON mesh.presence (disconnected_at) WHERE disconnected_at IS NOT NULL;
CREATE INDEX presence_session ON mesh.presence (mesh_id, session_pubkey) WHERE session_pubkey <> '';

-- When a broker last looked whose lease has run out, by the server's clock. For as long as none did, no time has passed
-- for a lease without a socket: its holder had nobody to return to.
CREATE TABLE mesh.presence_clock (
  only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
  looked_at bigint NOT NULL
) WITH (fillfactor = 10); -- updated all the time

-- The number of the last one in a mesh who came or went: gapless, as committed. Taken last in a transaction, of several
-- meshes in their order.
CREATE TABLE mesh.presence_counter (
  mesh_id bigint PRIMARY KEY,
  seq bigint NOT NULL
) WITH (fillfactor = 10);

-- What happened to leases, in its order. Who came and who went has a `seq`, and is announced; the rest is for who
-- looks into it later. `at` is the server's time.
CREATE TABLE mesh.presence_event (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  mesh_id bigint NOT NULL,
  member_id bigint NOT NULL,
  session_pubkey text COLLATE "C" NOT NULL,
  presence_uid text COLLATE "C" NOT NULL,
  what text NOT NULL CHECK (what IN ('joined', 'left', 'begun', 'ended', 'offline', 'online', 'swapped')),
  at bigint NOT NULL,
  because text,
  seq bigint,
  commit_xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  CHECK ((seq IS NOT NULL) = (what IN ('joined', 'left')))
);

CREATE UNIQUE INDEX presence_event_seq ON mesh.presence_event (mesh_id, seq) WHERE seq IS NOT NULL;

-- What an inbox holds and nobody has marked as read.
CREATE INDEX delivery_unread ON mesh.delivery_queue (recipient_id)
WHERE delivered_at IS NOT NULL AND read_at IS NULL AND acted_at IS NULL AND dead_at IS NULL;

-- --- retention ---

-- What was deleted, for those who copied it before.
CREATE TABLE mesh.tombstone (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  what text NOT NULL CHECK (what IN ('message', 'dedupe')),
  mesh_id bigint NOT NULL,
  sender_id bigint NOT NULL,
  client_message_id text COLLATE "C" NOT NULL,
  broker_message_id text COLLATE "C",
  history_id bigint,
  deleted_at bigint NOT NULL,
  commit_xid xid8 NOT NULL DEFAULT pg_current_xact_id()
);

-- Accepted ids are swept in the order of their messages' tombstones; only retired ones have to be looked for.
CREATE INDEX client_message_dedupe_retired ON mesh.client_message_dedupe (expires_at) WHERE state = 'retired';

-- --- the pipeline ---

-- What was committed since a snapshot is found by the transaction that wrote it. A row that is changed later keeps it.
CREATE INDEX client_message_dedupe_commit ON mesh.client_message_dedupe (commit_xid);
CREATE INDEX message_history_commit ON mesh.message_history (commit_xid);
CREATE INDEX topic_message_commit ON mesh.topic_message (commit_xid);
CREATE INDEX message_queue_commit ON mesh.message_queue (commit_xid);
CREATE INDEX delivery_queue_commit ON mesh.delivery_queue (commit_xid);
CREATE INDEX mention_index_commit ON mesh.mention_index (commit_xid);
CREATE INDEX queue_lease_commit ON mesh.queue_lease (commit_xid);
CREATE INDEX delivery_event_commit ON mesh.delivery_event (commit_xid);
CREATE INDEX presence_event_commit ON mesh.presence_event (commit_xid);
CREATE INDEX tombstone_commit ON mesh.tombstone (commit_xid);
