-- The hub's store. Times are wall milliseconds of the hubs.
-- Keys compare by their bytes (COLLATE "C"): a language's rules would be slow, and may change with the system.

-- What all hubs of this database know.
CREATE TABLE hub.hub_state (
  name text PRIMARY KEY,
  value bytea NOT NULL
);

-- Which store this is, for as long as it lives: a copy of its rows says whose they are.
INSERT INTO hub.hub_state (name, value)
VALUES ('store_id', convert_to(right(replace(gen_random_uuid()::text, '-', ''), 16), 'UTF8'));

-- Rows as they stand. `seq` is the place in the journal at which the row was made.
CREATE TABLE hub.entity (
  kind text COLLATE "C" NOT NULL
    CHECK (kind IN ('progress', 'messages', 'token_events', 'decisions', 'tasks', 'workplans')),
  id text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  revision bigint NOT NULL CHECK (revision > 0),
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL CHECK (updated_at >= created_at),
  fields text NOT NULL,
  PRIMARY KEY (kind, id)
);

CREATE UNIQUE INDEX entity_in_order ON hub.entity (kind, seq);

-- How far the journal has come. Taken last in a write, and held until its commit: so lines become visible in their
-- order, and without gaps.
CREATE TABLE hub.hub_counter (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  seq bigint NOT NULL
) WITH (fillfactor = 10); -- updated by every write: the versions of the row find room beside it

INSERT INTO hub.hub_counter (seq) VALUES (0);

-- Every write that changed something, in the order of their commits, without gaps. A row's lines are a chain: each
-- begins at the revision that the one before it made.
CREATE TABLE hub.hub_write (
  seq bigint PRIMARY KEY,
  at bigint NOT NULL,
  kind text COLLATE "C" NOT NULL,
  entity_id text COLLATE "C" NOT NULL,
  base_revision bigint NOT NULL CHECK (base_revision >= 0),
  revision bigint NOT NULL CHECK (revision = base_revision + 1),
  method text NOT NULL,
  path text NOT NULL,
  idempotency_key text,
  source_host text,
  source_agent text,
  expectation text,
  fields text NOT NULL,
  deleted boolean NOT NULL,
  commit_xid xid8 NOT NULL DEFAULT pg_current_xact_id()
);

CREATE UNIQUE INDEX hub_write_chain ON hub.hub_write (kind, entity_id, revision);

-- What came since a moment, for whoever copies it.
CREATE INDEX hub_write_commit ON hub.hub_write (commit_xid);

CREATE FUNCTION hub.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'append-only: hub_write takes no %', TG_OP USING ERRCODE = 'integrity_constraint_violation';
END $$;

CREATE TRIGGER hub_write_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON hub.hub_write
FOR EACH STATEMENT EXECUTE FUNCTION hub.refuse_change();

-- How many rows stand, so that nobody has to count them. A kind without a status has the empty one.
CREATE TABLE hub.hub_tally (
  kind text COLLATE "C" NOT NULL,
  status text COLLATE "C" NOT NULL,
  rows bigint NOT NULL CHECK (rows >= 0),
  PRIMARY KEY (kind, status)
) WITH (fillfactor = 10); -- as the counter
