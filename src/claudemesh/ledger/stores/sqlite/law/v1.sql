-- Version 1 of the ledger's law. It is frozen: a change here is version 3, and a road to it.
--
-- Whoever has the file and a shell can switch off foreign keys and CHECKs, replace rows by INSERT OR REPLACE (for which
-- delete triggers are silent) and name a rowid of their choice. So every rule is said by a trigger, the CHECKs, UNIQUEs
-- and foreign keys being there for readers; and every trigger that judges an insert looks for what it would replace.
-- Each refusal begins with the words of the rule that it keeps. Only functions that SQLite 3.40 has are used.
-- The end of a lease is read with '+0 days', without which that SQLite leaves a 30th of February as it is.

CREATE TABLE cassette_meta (
  key TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL
) STRICT;

-- Rowids are the order of posting: dense, never given twice, and therefore left as they are by VACUUM.
CREATE TABLE cassette_messages (
  message_id TEXT PRIMARY KEY NOT NULL CHECK (message_id <> ''),
  run_id TEXT NOT NULL CHECK (run_id <> ''),
  source TEXT NOT NULL CHECK (source IN ('USER', 'PLANNER', 'SYSTEM', 'WORKER')),
  idempotency_key TEXT CHECK (idempotency_key <> ''),
  payload_json TEXT NOT NULL CHECK (json_valid(payload_json)),
  created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  UNIQUE (run_id, idempotency_key)
) STRICT;

CREATE TABLE cassette_jobs (
  job_id TEXT PRIMARY KEY NOT NULL CHECK (job_id <> ''),
  message_id TEXT NOT NULL REFERENCES cassette_messages (message_id),
  intent TEXT NOT NULL CHECK (intent <> ''),
  ordinal INTEGER NOT NULL CHECK (ordinal BETWEEN 1 AND 2147483647),
  created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  UNIQUE (message_id, ordinal)
) STRICT;

CREATE TABLE cassette_steps (
  step_id TEXT PRIMARY KEY NOT NULL CHECK (step_id <> ''),
  job_id TEXT NOT NULL REFERENCES cassette_jobs (job_id),
  ordinal INTEGER NOT NULL CHECK (ordinal BETWEEN 1 AND 2147483647),
  status TEXT NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'LEASED', 'COMMITTED')),
  lease_owner TEXT,
  lease_expires_at TEXT,
  fencing_token INTEGER NOT NULL DEFAULT 0 CHECK (fencing_token >= 0),
  payload_json TEXT NOT NULL CHECK (json_valid(payload_json)),
  created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  UNIQUE (job_id, ordinal)
) STRICT;

CREATE TABLE cassette_receipts (
  receipt_id TEXT PRIMARY KEY NOT NULL CHECK (receipt_id <> ''),
  step_id TEXT NOT NULL UNIQUE REFERENCES cassette_steps (step_id),
  job_id TEXT NOT NULL REFERENCES cassette_jobs (job_id),
  worker_id TEXT NOT NULL CHECK (worker_id <> ''),
  fencing_token INTEGER NOT NULL CHECK (fencing_token > 0),
  outcome TEXT NOT NULL CHECK (outcome IN ('SUCCESS', 'FAILURE', 'ABORTED')),
  receipt_json TEXT NOT NULL CHECK (json_valid(receipt_json)),
  created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) STRICT;

-- --- messages ------------------------------------------------------------------------------------------

CREATE TRIGGER tr_messages_append_only_update BEFORE UPDATE ON cassette_messages
BEGIN
  SELECT RAISE(ABORT, 'append-only: cassette_messages takes no UPDATE');
END;

CREATE TRIGGER tr_messages_append_only_delete BEFORE DELETE ON cassette_messages
BEGIN
  SELECT RAISE(ABORT, 'append-only: cassette_messages takes no DELETE');
END;

CREATE TRIGGER tr_messages_insert_guard BEFORE INSERT ON cassette_messages
BEGIN
  SELECT CASE
    WHEN EXISTS (SELECT 1 FROM cassette_messages WHERE message_id = NEW.message_id OR rowid = NEW.rowid)
      THEN RAISE(ABORT, 'append-only: cassette_messages has such a row, and it is not replaced')
    WHEN EXISTS (
      SELECT 1 FROM cassette_messages WHERE run_id = NEW.run_id AND idempotency_key = NEW.idempotency_key
    ) THEN RAISE(ABORT, 'append-only: the run has a message under this idempotency_key, and it is not replaced')
    WHEN coalesce(NEW.message_id, '') = '' OR coalesce(NEW.run_id, '') = '' OR NEW.idempotency_key = ''
      THEN RAISE(ABORT, 'CHECK: message_id, run_id and idempotency_key are never empty')
    WHEN coalesce(NEW.source, '') NOT IN ('USER', 'PLANNER', 'SYSTEM', 'WORKER')
      THEN RAISE(ABORT, 'Invalid source: it is USER, PLANNER, SYSTEM or WORKER')
    WHEN NOT coalesce(json_valid(NEW.payload_json), 0)
      THEN RAISE(ABORT, 'CHECK: payload_json is not JSON')
    WHEN NOT coalesce(NEW.created_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*', 0)
      OR julianday(NEW.created_at) IS NULL
      THEN RAISE(ABORT, 'CHECK: created_at is not an instant such as 2026-01-31T12:00:00.000Z')
  END;
END;

CREATE TRIGGER tr_messages_in_order AFTER INSERT ON cassette_messages
WHEN NEW.rowid IS NOT (SELECT coalesce(max(rowid), 0) + 1 FROM cassette_messages WHERE rowid <> NEW.rowid)
BEGIN
  SELECT RAISE(ABORT, 'append-only: a message is posted after all others, and not at a rowid of its choice');
END;

-- --- jobs ----------------------------------------------------------------------------------------------

CREATE TRIGGER tr_jobs_append_only_update BEFORE UPDATE ON cassette_jobs
BEGIN
  SELECT RAISE(ABORT, 'append-only: cassette_jobs takes no UPDATE, a job is immutable');
END;

CREATE TRIGGER tr_jobs_append_only_delete BEFORE DELETE ON cassette_jobs
BEGIN
  SELECT RAISE(ABORT, 'append-only: cassette_jobs takes no DELETE, a job is immutable');
END;

CREATE TRIGGER tr_jobs_insert_guard BEFORE INSERT ON cassette_jobs
BEGIN
  SELECT CASE
    WHEN EXISTS (SELECT 1 FROM cassette_jobs WHERE job_id = NEW.job_id OR rowid = NEW.rowid)
      THEN RAISE(ABORT, 'append-only: cassette_jobs has such a row, and it is not replaced')
    WHEN EXISTS (SELECT 1 FROM cassette_jobs WHERE message_id = NEW.message_id AND ordinal = NEW.ordinal)
      THEN RAISE(ABORT, 'append-only: the message has a job of this ordinal, and it is not replaced')
    WHEN NOT EXISTS (SELECT 1 FROM cassette_messages WHERE message_id = NEW.message_id)
      THEN RAISE(ABORT, 'FOREIGN KEY: a job belongs to a message')
    WHEN coalesce(NEW.job_id, '') = '' OR coalesce(NEW.intent, '') = ''
      THEN RAISE(ABORT, 'CHECK: job_id and intent are never empty')
    WHEN NOT coalesce(NEW.ordinal BETWEEN 1 AND 2147483647, 0)
      THEN RAISE(ABORT, 'CHECK: an ordinal is positive, and at most 2147483647')
    WHEN NOT coalesce(NEW.created_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*', 0)
      OR julianday(NEW.created_at) IS NULL
      THEN RAISE(ABORT, 'CHECK: created_at is not an instant such as 2026-01-31T12:00:00.000Z')
  END;
END;

CREATE TRIGGER tr_jobs_in_order AFTER INSERT ON cassette_jobs
WHEN NEW.rowid IS NOT (SELECT coalesce(max(rowid), 0) + 1 FROM cassette_jobs WHERE rowid <> NEW.rowid)
BEGIN
  SELECT RAISE(ABORT, 'append-only: a job is posted after all others, and not at a rowid of its choice');
END;

-- --- steps: what never changes -------------------------------------------------------------------------

CREATE TRIGGER tr_steps_append_only_delete BEFORE DELETE ON cassette_steps
BEGIN
  SELECT RAISE(ABORT, 'append-only: cassette_steps takes no DELETE');
END;

CREATE TRIGGER tr_steps_append_only_identity BEFORE UPDATE ON cassette_steps
WHEN NEW.rowid IS NOT OLD.rowid OR NEW.step_id IS NOT OLD.step_id OR NEW.job_id IS NOT OLD.job_id
  OR NEW.ordinal IS NOT OLD.ordinal OR NEW.payload_json IS NOT OLD.payload_json
  OR NEW.created_at IS NOT OLD.created_at
BEGIN
  SELECT RAISE(ABORT, 'append-only: of a step only status and lease change');
END;

CREATE TRIGGER tr_steps_insert_guard BEFORE INSERT ON cassette_steps
BEGIN
  SELECT CASE
    WHEN EXISTS (SELECT 1 FROM cassette_steps WHERE step_id = NEW.step_id OR rowid = NEW.rowid)
      THEN RAISE(ABORT, 'append-only: cassette_steps has such a row, and it is not replaced')
    WHEN EXISTS (SELECT 1 FROM cassette_steps WHERE job_id = NEW.job_id AND ordinal = NEW.ordinal)
      THEN RAISE(ABORT, 'append-only: the job has a step of this ordinal, and it is not replaced')
    WHEN NOT EXISTS (SELECT 1 FROM cassette_jobs WHERE job_id = NEW.job_id)
      THEN RAISE(ABORT, 'FOREIGN KEY: a step belongs to a job')
    WHEN NEW.status IS NOT 'PENDING'
      THEN RAISE(ABORT, 'Invalid status: a step is posted PENDING')
    WHEN NEW.lease_owner IS NOT NULL OR NEW.lease_expires_at IS NOT NULL OR NEW.fencing_token IS NOT 0
      THEN RAISE(ABORT, 'Lease fields can only be set via PENDING -> LEASED: a step is posted without a lease')
    WHEN coalesce(NEW.step_id, '') = ''
      THEN RAISE(ABORT, 'CHECK: step_id is never empty')
    WHEN NOT coalesce(NEW.ordinal BETWEEN 1 AND 2147483647, 0)
      THEN RAISE(ABORT, 'CHECK: an ordinal is positive, and at most 2147483647')
    WHEN NOT coalesce(json_valid(NEW.payload_json), 0)
      THEN RAISE(ABORT, 'CHECK: payload_json is not JSON')
    WHEN NOT coalesce(NEW.created_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*', 0)
      OR julianday(NEW.created_at) IS NULL
      THEN RAISE(ABORT, 'CHECK: created_at is not an instant such as 2026-01-31T12:00:00.000Z')
  END;
END;

CREATE TRIGGER tr_steps_in_order AFTER INSERT ON cassette_steps
WHEN NEW.rowid IS NOT (SELECT coalesce(max(rowid), 0) + 1 FROM cassette_steps WHERE rowid <> NEW.rowid)
BEGIN
  SELECT RAISE(ABORT, 'append-only: a step is posted after all others, and not at a rowid of its choice');
END;

-- --- steps: how they move ------------------------------------------------------------------------------

CREATE TRIGGER tr_steps_status_check BEFORE UPDATE ON cassette_steps
WHEN coalesce(NEW.status, '') NOT IN ('PENDING', 'LEASED', 'COMMITTED')
BEGIN
  SELECT RAISE(ABORT, 'Invalid status: it is PENDING, LEASED or COMMITTED');
END;

CREATE TRIGGER tr_steps_fsm_illegal_1 BEFORE UPDATE ON cassette_steps
WHEN OLD.status = 'PENDING' AND NEW.status = 'COMMITTED'
BEGIN
  SELECT RAISE(ABORT, 'Illegal transition PENDING -> COMMITTED: a step is leased first');
END;

CREATE TRIGGER tr_steps_fsm_illegal_2 BEFORE UPDATE ON cassette_steps
WHEN OLD.status = 'LEASED' AND NEW.status = 'PENDING'
BEGIN
  SELECT RAISE(ABORT, 'Illegal transition LEASED -> PENDING: version 1 has no requeue');
END;

CREATE TRIGGER tr_steps_fsm_illegal_3 BEFORE UPDATE ON cassette_steps
WHEN OLD.status = 'COMMITTED' AND NEW.status = 'LEASED'
BEGIN
  SELECT RAISE(ABORT, 'Illegal transition COMMITTED -> LEASED: what is committed stays');
END;

CREATE TRIGGER tr_steps_fsm_illegal_4 BEFORE UPDATE ON cassette_steps
WHEN OLD.status = 'COMMITTED' AND NEW.status = 'PENDING'
BEGIN
  SELECT RAISE(ABORT, 'Illegal transition COMMITTED -> PENDING: what is committed stays');
END;

CREATE TRIGGER tr_steps_fsm_illegal_5 BEFORE UPDATE ON cassette_steps
WHEN OLD.status = 'COMMITTED' AND NEW.status = 'COMMITTED'
BEGIN
  SELECT RAISE(ABORT, 'Illegal transition COMMITTED -> COMMITTED: what is committed stays');
END;

CREATE TRIGGER tr_steps_fsm_illegal_6 BEFORE UPDATE ON cassette_steps
WHEN OLD.status = 'LEASED' AND NEW.status = 'LEASED'
BEGIN
  SELECT RAISE(ABORT, 'Illegal transition LEASED -> LEASED: Lease fields can only be set via PENDING -> LEASED');
END;

CREATE TRIGGER tr_steps_lease_prevent_direct_set BEFORE UPDATE ON cassette_steps
WHEN OLD.status = 'PENDING' AND NEW.status = 'PENDING' AND (
  NEW.lease_owner IS NOT OLD.lease_owner OR NEW.lease_expires_at IS NOT OLD.lease_expires_at
  OR NEW.fencing_token IS NOT OLD.fencing_token
)
BEGIN
  SELECT RAISE(ABORT, 'Lease fields can only be set via PENDING -> LEASED');
END;

CREATE TRIGGER tr_steps_claim_guard BEFORE UPDATE ON cassette_steps
WHEN OLD.status = 'PENDING' AND NEW.status = 'LEASED'
BEGIN
  SELECT CASE
    WHEN NEW.fencing_token IS NOT OLD.fencing_token + 1
      THEN RAISE(ABORT, 'Fencing token mismatch: a claim raises it by one')
    WHEN coalesce(NEW.lease_owner, '') = ''
      THEN RAISE(ABORT, 'Lease fields can only be set together: a lease has an owner')
    WHEN NEW.lease_expires_at IS NOT strftime('%Y-%m-%dT%H:%M:%fZ', NEW.lease_expires_at, '+0 days')
      OR NEW.lease_expires_at IS NULL
      THEN RAISE(ABORT, 'Lease fields can only be set together: a lease ends at an instant such as 2026-01-31T12:00:00.000Z')
    WHEN NEW.lease_expires_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
      THEN RAISE(ABORT, 'lease expired: a lease ends in the future')
  END;
END;

CREATE TRIGGER tr_steps_commit_guard BEFORE UPDATE ON cassette_steps
WHEN OLD.status = 'LEASED' AND NEW.status = 'COMMITTED'
BEGIN
  SELECT CASE
    WHEN NEW.lease_owner IS NOT OLD.lease_owner OR NEW.lease_expires_at IS NOT OLD.lease_expires_at
      OR NEW.fencing_token IS NOT OLD.fencing_token
      THEN RAISE(ABORT, 'Lease fields can only be set via PENDING -> LEASED: they stay as evidence')
    WHEN NOT EXISTS (
      SELECT 1 FROM cassette_receipts
      WHERE step_id = OLD.step_id AND job_id = OLD.job_id AND worker_id = OLD.lease_owner
        AND fencing_token = OLD.fencing_token
    ) THEN RAISE(ABORT, 'Illegal transition LEASED -> COMMITTED without its receipt')
  END;
END;

-- --- receipts ------------------------------------------------------------------------------------------

CREATE TRIGGER tr_receipts_append_only_update BEFORE UPDATE ON cassette_receipts
BEGIN
  SELECT RAISE(ABORT, 'append-only: cassette_receipts takes no UPDATE');
END;

CREATE TRIGGER tr_receipts_append_only_delete BEFORE DELETE ON cassette_receipts
BEGIN
  SELECT RAISE(ABORT, 'append-only: cassette_receipts takes no DELETE');
END;

CREATE TRIGGER tr_receipts_insert_guard BEFORE INSERT ON cassette_receipts
BEGIN
  SELECT CASE
    WHEN EXISTS (SELECT 1 FROM cassette_receipts WHERE receipt_id = NEW.receipt_id OR rowid = NEW.rowid)
      THEN RAISE(ABORT, 'append-only: cassette_receipts has such a row, and it is not replaced')
    WHEN coalesce(NEW.outcome, '') NOT IN ('SUCCESS', 'FAILURE', 'ABORTED')
      THEN RAISE(ABORT, 'Invalid outcome: it is SUCCESS, FAILURE or ABORTED')
    WHEN s.step_id IS NULL OR s.job_id IS NOT NEW.job_id
      THEN RAISE(ABORT, 'FOREIGN KEY: a receipt belongs to a step and to its job')
    WHEN EXISTS (SELECT 1 FROM cassette_receipts WHERE step_id = NEW.step_id)
      THEN RAISE(ABORT, 'Step is not leased: it is COMMITTED, and has its one receipt')
    WHEN s.status IS NOT 'LEASED'
      THEN RAISE(ABORT, 'Step is not leased: a receipt is for the live lease')
    WHEN s.fencing_token IS NOT NEW.fencing_token
      THEN RAISE(ABORT, 'Fencing token mismatch: the step is held under another token')
    WHEN s.lease_owner IS NOT NEW.worker_id
      THEN RAISE(ABORT, 'Wrong worker: another one holds the lease')
    WHEN NOT coalesce(s.lease_expires_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 0)
      THEN RAISE(ABORT, 'lease expired: the step is not this worker''s any more')
    WHEN coalesce(NEW.receipt_id, '') = ''
      THEN RAISE(ABORT, 'CHECK: receipt_id is never empty')
    WHEN NOT coalesce(json_valid(NEW.receipt_json), 0)
      THEN RAISE(ABORT, 'CHECK: receipt_json is not JSON')
    WHEN NEW.created_at IS NOT strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
      THEN RAISE(ABORT, 'CHECK: created_at is now, and not at a time of its choice')
  END
  FROM (SELECT 1) LEFT JOIN cassette_steps AS s ON s.step_id = NEW.step_id;
END;

CREATE TRIGGER tr_receipts_in_order AFTER INSERT ON cassette_receipts
WHEN NEW.rowid IS NOT (SELECT coalesce(max(rowid), 0) + 1 FROM cassette_receipts WHERE rowid <> NEW.rowid)
BEGIN
  SELECT RAISE(ABORT, 'append-only: a receipt comes after all others, and not at a rowid of its choice');
END;

-- The receipt is what commits a step: neither is ever there without the other.
CREATE TRIGGER tr_receipts_commit_step AFTER INSERT ON cassette_receipts
BEGIN
  UPDATE cassette_steps SET status = 'COMMITTED' WHERE step_id = NEW.step_id;
  SELECT RAISE(ABORT, 'Illegal transition: a receipt commits its step')
  WHERE (SELECT status FROM cassette_steps WHERE step_id = NEW.step_id) IS NOT 'COMMITTED';
END;

-- --- the version ---------------------------------------------------------------------------------------

INSERT INTO cassette_meta (key, value) VALUES ('db_version', '1'), ('schema_version', '1');

CREATE TRIGGER tr_meta_append_only_update BEFORE UPDATE ON cassette_meta
BEGIN
  SELECT RAISE(ABORT, 'append-only: cassette_meta takes no UPDATE, an upgrade changes the version');
END;

CREATE TRIGGER tr_meta_append_only_delete BEFORE DELETE ON cassette_meta
BEGIN
  SELECT RAISE(ABORT, 'append-only: cassette_meta takes no DELETE');
END;

-- Whose ledger it is comes after the law itself, and once.
CREATE TRIGGER tr_meta_append_only_insert BEFORE INSERT ON cassette_meta
WHEN NEW.key IS NOT 'ledger_id' OR EXISTS (SELECT 1 FROM cassette_meta WHERE key = 'ledger_id' OR rowid = NEW.rowid)
  OR length(NEW.value) <> 16 OR NEW.value GLOB '*[^0-9a-f]*'
BEGIN
  SELECT RAISE(ABORT, 'append-only: cassette_meta takes nothing but a first ledger_id of 16 hex digits');
END;
