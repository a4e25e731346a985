-- From version 1 to version 2: requeue and renewal with their records, an order that an index knows, the hash chain.
-- A new ledger takes this road too, so that there is one form of each version. What the database cannot compute, the
-- hashes, is computed by whoever writes a row, and by `verify` once more.

-- --- requeues and renewals -----------------------------------------------------------------------------

CREATE TABLE cassette_requeues (
  requeue_id TEXT PRIMARY KEY NOT NULL CHECK (requeue_id <> ''),
  step_id TEXT NOT NULL REFERENCES cassette_steps (step_id),
  worker_id TEXT NOT NULL CHECK (worker_id <> ''),
  fencing_token INTEGER NOT NULL CHECK (fencing_token > 0),
  lease_expires_at TEXT NOT NULL,
  created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  UNIQUE (step_id, fencing_token)
) STRICT;

CREATE TABLE cassette_renewals (
  renewal_id TEXT PRIMARY KEY NOT NULL CHECK (renewal_id <> ''),
  step_id TEXT NOT NULL REFERENCES cassette_steps (step_id),
  worker_id TEXT NOT NULL CHECK (worker_id <> ''),
  fencing_token INTEGER NOT NULL CHECK (fencing_token > 0),
  lease_expires_at TEXT NOT NULL,
  created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  UNIQUE (step_id, fencing_token, lease_expires_at)
) STRICT;

CREATE TRIGGER tr_requeues_append_only_update BEFORE UPDATE ON cassette_requeues
BEGIN
  SELECT RAISE(ABORT, 'append-only: cassette_requeues takes no UPDATE');
END;

CREATE TRIGGER tr_requeues_append_only_delete BEFORE DELETE ON cassette_requeues
BEGIN
  SELECT RAISE(ABORT, 'append-only: cassette_requeues takes no DELETE');
END;

CREATE TRIGGER tr_requeues_insert_guard BEFORE INSERT ON cassette_requeues
BEGIN
  SELECT CASE
    WHEN EXISTS (SELECT 1 FROM cassette_requeues WHERE requeue_id = NEW.requeue_id OR rowid = NEW.rowid)
      THEN RAISE(ABORT, 'append-only: cassette_requeues has such a row, and it is not replaced')
    WHEN s.step_id IS NULL
      THEN RAISE(ABORT, 'FOREIGN KEY: a requeue belongs to a step')
    WHEN s.status IS NOT 'LEASED' OR EXISTS (SELECT 1 FROM cassette_receipts WHERE step_id = NEW.step_id)
      THEN RAISE(ABORT, 'Step is not leased: only a lease that expired is requeued')
    WHEN s.fencing_token IS NOT NEW.fencing_token
      THEN RAISE(ABORT, 'Fencing token mismatch: the step is held under another token')
    WHEN s.lease_owner IS NOT NEW.worker_id OR s.lease_expires_at IS NOT NEW.lease_expires_at
      THEN RAISE(ABORT, 'Wrong worker: a requeue records whose lease expired, and when')
    WHEN NOT coalesce(s.lease_expires_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 0)
      THEN RAISE(ABORT, 'lease is live: a step is requeued after its lease expired, not before')
    WHEN EXISTS (
      SELECT 1 FROM cassette_requeues WHERE step_id = NEW.step_id AND fencing_token = NEW.fencing_token
    ) THEN RAISE(ABORT, 'append-only: this lease was requeued, and the record is not replaced')
    WHEN coalesce(NEW.requeue_id, '') = ''
      THEN RAISE(ABORT, 'CHECK: requeue_id is never empty')
    WHEN NEW.created_at IS NOT strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
      THEN RAISE(ABORT, 'CHECK: created_at is now, and not at a time of its choice')
  END
  FROM (SELECT 1) LEFT JOIN cassette_steps AS s ON s.step_id = NEW.step_id;
END;

CREATE TRIGGER tr_requeues_in_order AFTER INSERT ON cassette_requeues
WHEN NEW.rowid IS NOT (SELECT coalesce(max(rowid), 0) + 1 FROM cassette_requeues WHERE rowid <> NEW.rowid)
BEGIN
  SELECT RAISE(ABORT, 'append-only: a requeue comes after all others, and not at a rowid of its choice');
END;

-- The record is what requeues a step.
CREATE TRIGGER tr_requeues_free_step AFTER INSERT ON cassette_requeues
BEGIN
  UPDATE cassette_steps SET status = 'PENDING', lease_owner = NULL, lease_expires_at = NULL
  WHERE step_id = NEW.step_id;
  SELECT RAISE(ABORT, 'Illegal transition: a requeue frees its step')
  WHERE (SELECT status FROM cassette_steps WHERE step_id = NEW.step_id) IS NOT 'PENDING';
END;

CREATE TRIGGER tr_renewals_append_only_update BEFORE UPDATE ON cassette_renewals
BEGIN
  SELECT RAISE(ABORT, 'append-only: cassette_renewals takes no UPDATE');
END;

CREATE TRIGGER tr_renewals_append_only_delete BEFORE DELETE ON cassette_renewals
BEGIN
  SELECT RAISE(ABORT, 'append-only: cassette_renewals takes no DELETE');
END;

CREATE TRIGGER tr_renewals_insert_guard BEFORE INSERT ON cassette_renewals
BEGIN
  SELECT CASE
    WHEN EXISTS (SELECT 1 FROM cassette_renewals WHERE renewal_id = NEW.renewal_id OR rowid = NEW.rowid)
      THEN RAISE(ABORT, 'append-only: cassette_renewals has such a row, and it is not replaced')
    WHEN s.step_id IS NULL
      THEN RAISE(ABORT, 'FOREIGN KEY: a renewal belongs to a step')
    WHEN s.status IS NOT 'LEASED' OR EXISTS (SELECT 1 FROM cassette_receipts WHERE step_id = NEW.step_id)
      THEN RAISE(ABORT, 'Step is not leased: only a live lease is renewed')
    WHEN s.fencing_token IS NOT NEW.fencing_token
      THEN RAISE(ABORT, 'Fencing token mismatch: the step is held under another token')
    WHEN s.lease_owner IS NOT NEW.worker_id
      THEN RAISE(ABORT, 'Wrong worker: another one holds the lease')
    WHEN NOT coalesce(s.lease_expires_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 0)
      THEN RAISE(ABORT, 'lease expired: the step is not this worker''s any more')
    WHEN NEW.lease_expires_at IS NOT strftime('%Y-%m-%dT%H:%M:%fZ', NEW.lease_expires_at, '+0 days')
      OR NOT coalesce(NEW.lease_expires_at > s.lease_expires_at, 0)
      THEN RAISE(ABORT, 'Lease fields can only be set to a later end by a renewal')
    WHEN EXISTS (
      SELECT 1 FROM cassette_renewals
      WHERE step_id = NEW.step_id AND fencing_token = NEW.fencing_token AND lease_expires_at = NEW.lease_expires_at
    ) THEN RAISE(ABORT, 'append-only: this lease was renewed so, and the record is not replaced')
    WHEN coalesce(NEW.renewal_id, '') = ''
      THEN RAISE(ABORT, 'CHECK: renewal_id is never empty')
    WHEN NEW.created_at IS NOT strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
      THEN RAISE(ABORT, 'CHECK: created_at is now, and not at a time of its choice')
  END
  FROM (SELECT 1) LEFT JOIN cassette_steps AS s ON s.step_id = NEW.step_id;
END;

CREATE TRIGGER tr_renewals_in_order AFTER INSERT ON cassette_renewals
WHEN NEW.rowid IS NOT (SELECT coalesce(max(rowid), 0) + 1 FROM cassette_renewals WHERE rowid <> NEW.rowid)
BEGIN
  SELECT RAISE(ABORT, 'append-only: a renewal comes after all others, and not at a rowid of its choice');
END;

-- The record is what renews a lease.
CREATE TRIGGER tr_renewals_extend_lease AFTER INSERT ON cassette_renewals
BEGIN
  UPDATE cassette_steps SET lease_expires_at = NEW.lease_expires_at WHERE step_id = NEW.step_id;
  SELECT RAISE(ABORT, 'Illegal transition: a renewal extends its lease')
  WHERE (SELECT lease_expires_at FROM cassette_steps WHERE step_id = NEW.step_id) IS NOT NEW.lease_expires_at;
END;

-- --- steps ---------------------------------------------------------------------------------------------

-- The run and the order of posting, beside the step, for one index to know what is next. Who leaves them out has them
-- filled in. `claimed_at` is when the last claim was made.
ALTER TABLE cassette_steps ADD COLUMN run_id TEXT;
ALTER TABLE cassette_steps ADD COLUMN message_order INTEGER;
ALTER TABLE cassette_steps ADD COLUMN job_ordinal INTEGER;
ALTER TABLE cassette_steps ADD COLUMN claimed_at TEXT;

DROP TRIGGER tr_steps_insert_guard;
DROP TRIGGER tr_steps_fsm_illegal_2;
DROP TRIGGER tr_steps_fsm_illegal_5; -- and back below as it was: the order of what is committed is filled in too
DROP TRIGGER tr_steps_fsm_illegal_6;
DROP TRIGGER tr_steps_lease_prevent_direct_set;
DROP TRIGGER tr_steps_claim_guard;
DROP TRIGGER tr_steps_commit_guard;

UPDATE cassette_steps SET (run_id, message_order, job_ordinal) = (
  SELECT m.run_id, m.rowid, j.ordinal
  FROM cassette_jobs AS j JOIN cassette_messages AS m ON m.message_id = j.message_id
  WHERE j.job_id = cassette_steps.job_id
);

-- What can be claimed, in the order of claims, and what is held. What is committed is in no such index.
CREATE INDEX ix_steps_open ON cassette_steps (status, run_id, message_order, job_ordinal, ordinal)
WHERE status = 'PENDING' OR status = 'LEASED';

CREATE TRIGGER tr_steps_append_only_order BEFORE UPDATE ON cassette_steps
WHEN NEW.run_id IS NOT OLD.run_id OR NEW.message_order IS NOT OLD.message_order
  OR NEW.job_ordinal IS NOT OLD.job_ordinal
BEGIN
  SELECT CASE
    WHEN OLD.run_id IS NOT NULL OR OLD.status <> 'PENDING' OR NEW.status <> 'PENDING' OR NOT EXISTS (
      SELECT 1 FROM cassette_jobs AS j JOIN cassette_messages AS m ON m.message_id = j.message_id
      WHERE j.job_id = OLD.job_id AND NEW.run_id = m.run_id AND NEW.message_order = m.rowid
        AND NEW.job_ordinal = j.ordinal
    ) THEN RAISE(ABORT, 'append-only: the order of a step is that of its job and message')
  END;
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
      OR NEW.claimed_at IS NOT NULL
      THEN RAISE(ABORT, 'Lease fields can only be set via PENDING -> LEASED: a step is posted without a lease')
    WHEN (NEW.run_id IS NOT NULL OR NEW.message_order IS NOT NULL OR NEW.job_ordinal IS NOT NULL) AND NOT EXISTS (
      SELECT 1 FROM cassette_jobs AS j JOIN cassette_messages AS m ON m.message_id = j.message_id
      WHERE j.job_id = NEW.job_id AND NEW.run_id = m.run_id AND NEW.message_order = m.rowid
        AND NEW.job_ordinal = j.ordinal
    ) THEN RAISE(ABORT, 'append-only: the order of a step is that of its job and message')
    WHEN EXISTS (
      SELECT 1 FROM cassette_jobs AS j JOIN cassette_chain AS c ON c.kind = 'message' AND c.row_id = j.message_id
      WHERE j.job_id = NEW.job_id
    ) THEN RAISE(ABORT, 'append-only: the message is chained, and takes no more steps')
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

CREATE TRIGGER tr_steps_fill_order AFTER INSERT ON cassette_steps
WHEN NEW.run_id IS NULL
BEGIN
  UPDATE cassette_steps SET (run_id, message_order, job_ordinal) = (
    SELECT m.run_id, m.rowid, j.ordinal
    FROM cassette_jobs AS j JOIN cassette_messages AS m ON m.message_id = j.message_id
    WHERE j.job_id = NEW.job_id
  ) WHERE step_id = NEW.step_id;
END;

CREATE TRIGGER tr_steps_fsm_illegal_2 BEFORE UPDATE ON cassette_steps
WHEN OLD.status = 'LEASED' AND NEW.status = 'PENDING'
BEGIN
  SELECT CASE
    WHEN NOT EXISTS (
      SELECT 1 FROM cassette_requeues WHERE step_id = OLD.step_id AND fencing_token = OLD.fencing_token
    ) THEN RAISE(ABORT, 'Illegal transition LEASED -> PENDING without the record of a requeue')
    WHEN NEW.lease_owner IS NOT NULL OR NEW.lease_expires_at IS NOT NULL
      OR NEW.fencing_token IS NOT OLD.fencing_token OR NEW.claimed_at IS NOT OLD.claimed_at
      THEN RAISE(ABORT, 'Lease fields can only be set via PENDING -> LEASED: a requeue clears them and keeps the token')
  END;
END;

CREATE TRIGGER tr_steps_fsm_illegal_5 BEFORE UPDATE ON cassette_steps
WHEN OLD.status = 'COMMITTED' AND NEW.status = 'COMMITTED'
BEGIN
  SELECT RAISE(ABORT, 'Illegal transition COMMITTED -> COMMITTED: what is committed stays');
END;

CREATE TRIGGER tr_steps_fsm_illegal_6 BEFORE UPDATE ON cassette_steps
WHEN OLD.status = 'LEASED' AND NEW.status = 'LEASED'
BEGIN
  SELECT CASE
    WHEN NEW.lease_owner IS NOT OLD.lease_owner OR NEW.fencing_token IS NOT OLD.fencing_token
      OR NEW.claimed_at IS NOT OLD.claimed_at OR NEW.lease_expires_at IS OLD.lease_expires_at
      THEN RAISE(ABORT, 'Illegal transition LEASED -> LEASED: Lease fields can only be set via PENDING -> LEASED')
    WHEN NOT coalesce(NEW.lease_expires_at > OLD.lease_expires_at, 0) OR NOT EXISTS (
      SELECT 1 FROM cassette_renewals
      WHERE step_id = OLD.step_id AND fencing_token = OLD.fencing_token AND lease_expires_at = NEW.lease_expires_at
    ) THEN RAISE(ABORT, 'Illegal transition LEASED -> LEASED: Lease fields can only be set with the record of a renewal')
  END;
END;

CREATE TRIGGER tr_steps_lease_prevent_direct_set BEFORE UPDATE ON cassette_steps
WHEN OLD.status = 'PENDING' AND NEW.status = 'PENDING' AND (
  NEW.lease_owner IS NOT OLD.lease_owner OR NEW.lease_expires_at IS NOT OLD.lease_expires_at
  OR NEW.fencing_token IS NOT OLD.fencing_token OR NEW.claimed_at IS NOT OLD.claimed_at
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
    WHEN NEW.claimed_at IS NOT OLD.claimed_at AND NEW.claimed_at IS NOT strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
      THEN RAISE(ABORT, 'Lease fields can only be set together: claimed_at is now')
  END;
END;

CREATE TRIGGER tr_steps_commit_guard BEFORE UPDATE ON cassette_steps
WHEN OLD.status = 'LEASED' AND NEW.status = 'COMMITTED'
BEGIN
  SELECT CASE
    WHEN NEW.lease_owner IS NOT OLD.lease_owner OR NEW.lease_expires_at IS NOT OLD.lease_expires_at
      OR NEW.fencing_token IS NOT OLD.fencing_token OR NEW.claimed_at IS NOT OLD.claimed_at
      THEN RAISE(ABORT, 'Lease fields can only be set via PENDING -> LEASED: they stay as evidence')
    WHEN NOT EXISTS (
      SELECT 1 FROM cassette_receipts
      WHERE step_id = OLD.step_id AND job_id = OLD.job_id AND worker_id = OLD.lease_owner
        AND fencing_token = OLD.fencing_token
    ) THEN RAISE(ABORT, 'Illegal transition LEASED -> COMMITTED without its receipt')
  END;
END;

-- --- the chain -----------------------------------------------------------------------------------------

CREATE TABLE cassette_chain (
  seq INTEGER PRIMARY KEY NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('message', 'receipt', 'requeue', 'renewal')),
  row_id TEXT NOT NULL,
  previous_hash TEXT NOT NULL,
  hash TEXT NOT NULL CHECK (length(hash) = 64)
) STRICT;

-- Whether a message is chained is asked with every step. Of other rows only `verify` asks, so that a receipt writes
-- one page less.
CREATE UNIQUE INDEX ix_chain_messages ON cassette_chain (row_id) WHERE kind = 'message';

CREATE TRIGGER tr_chain_append_only_update BEFORE UPDATE ON cassette_chain
BEGIN
  SELECT RAISE(ABORT, 'append-only: cassette_chain takes no UPDATE');
END;

CREATE TRIGGER tr_chain_append_only_delete BEFORE DELETE ON cassette_chain
BEGIN
  SELECT RAISE(ABORT, 'append-only: cassette_chain takes no DELETE');
END;

CREATE TRIGGER tr_chain_insert_guard BEFORE INSERT ON cassette_chain
BEGIN
  SELECT CASE
    WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM cassette_chain)
      THEN RAISE(ABORT, 'append-only: the chain grows by one link at its end')
    WHEN NEW.kind = 'message' AND EXISTS (SELECT 1 FROM cassette_chain WHERE kind = 'message' AND row_id = NEW.row_id)
      THEN RAISE(ABORT, 'append-only: the message is chained already')
    WHEN NEW.previous_hash IS NOT coalesce(
      (SELECT hash FROM cassette_chain WHERE seq = NEW.seq - 1),
      '0000000000000000000000000000000000000000000000000000000000000000'
    ) THEN RAISE(ABORT, 'append-only: a link of the chain begins with the hash of the one before')
    WHEN length(NEW.hash) <> 64 OR NEW.hash GLOB '*[^0-9a-f]*'
      THEN RAISE(ABORT, 'CHECK: a hash is 64 hex digits')
    WHEN NOT CASE NEW.kind
      WHEN 'message' THEN EXISTS (SELECT 1 FROM cassette_messages WHERE message_id = NEW.row_id)
      WHEN 'receipt' THEN EXISTS (SELECT 1 FROM cassette_receipts WHERE receipt_id = NEW.row_id)
      WHEN 'requeue' THEN EXISTS (SELECT 1 FROM cassette_requeues WHERE requeue_id = NEW.row_id)
      WHEN 'renewal' THEN EXISTS (SELECT 1 FROM cassette_renewals WHERE renewal_id = NEW.row_id)
      ELSE 0
    END THEN RAISE(ABORT, 'FOREIGN KEY: a link of the chain belongs to a row')
  END;
END;

-- What is chained is whole.
CREATE TRIGGER tr_jobs_sealed BEFORE INSERT ON cassette_jobs
WHEN EXISTS (SELECT 1 FROM cassette_chain WHERE kind = 'message' AND row_id = NEW.message_id)
BEGIN
  SELECT RAISE(ABORT, 'append-only: the message is chained, and takes no more jobs');
END;

-- --- the version ---------------------------------------------------------------------------------------

DROP TRIGGER tr_meta_append_only_update;

UPDATE cassette_meta SET value = '2' WHERE key IN ('db_version', 'schema_version');

CREATE TRIGGER tr_meta_append_only_update BEFORE UPDATE ON cassette_meta
BEGIN
  SELECT RAISE(ABORT, 'append-only: cassette_meta takes no UPDATE, an upgrade changes the version');
END;
