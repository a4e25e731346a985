-- name: insert_if_free
-- A taken key is left as it is; the number of changes tells whether any was.
INSERT INTO outbox (
    id, client_message_id, request_fingerprint, to_asked, destination, payload, enqueued_at, next_attempt_at, status,
    attempts, route_class, is_status_write
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, 'pending', ?8, ?9, ?10)
ON CONFLICT (client_message_id) DO NOTHING;

-- name: standing
-- What stands under a key, and of one that another took the place of, what became of the last in that line.
WITH RECURSIVE line (id, superseded_by, depth) AS (
    SELECT id, superseded_by, 0 FROM outbox WHERE client_message_id = ?1
    UNION ALL
    SELECT next.id, next.superseded_by, depth + 1 FROM line JOIN outbox AS next ON next.id = line.superseded_by
)
SELECT
    asked.id, last.id, last.status, asked.request_fingerprint, last.last_error, last.answer_status,
    last.answer_headers, last.answer
FROM outbox AS asked
JOIN outbox AS last ON last.id = (SELECT id FROM line ORDER BY depth DESC LIMIT 1)
WHERE asked.client_message_id = ?1;

-- name: has_open
-- Whether writes of this entity wait, or are in conflict.
SELECT 1 FROM outbox WHERE destination = ?1 AND status IN ('pending', 'inflight', 'conflict') LIMIT 1;

-- name: last_open
-- The last of them, which a status write may make needless.
SELECT seq, id, status, attempts, is_status_write, payload FROM outbox
WHERE destination = ?1 AND status IN ('pending', 'inflight', 'conflict')
ORDER BY seq DESC LIMIT 1;

-- name: last_rebased
-- The last few of them: what they expected and expect now tells what was acknowledged in front of them.
SELECT payload FROM outbox
WHERE destination = ?1 AND status IN ('pending', 'inflight', 'conflict')
ORDER BY seq DESC LIMIT 8;

-- name: settle
-- Apply an event to the state it was judged on.
UPDATE outbox SET
    status = ?3,
    attempts = attempts + ?4,
    server_errors = server_errors + ?5,
    next_attempt_at = ?6,
    last_error = ?7,
    delivered_at = coalesce(?8, delivered_at),
    answer_status = coalesce(?9, answer_status),
    answer_headers = coalesce(?10, answer_headers),
    answer = coalesce(?11, answer),
    theirs = coalesce(?12, theirs)
WHERE seq = ?1 AND status = ?2;

-- name: behind
-- What waits next in the lane of an acknowledged write, to be rebased on its answer: unless the upstream may have it
-- already, which then knows its key by what it was. A few of them, so that a long queue takes no longer for each; those
-- further behind are moved when their turn is near, by what those before them once expected.
SELECT later.seq, later.payload FROM outbox AS acked
JOIN outbox AS later ON later.destination = acked.destination AND later.status IN ('pending', 'inflight', 'conflict')
WHERE acked.seq = ?1 AND later.status = 'pending' AND later.attempts = 0 AND later.seq > ?1
ORDER BY later.seq LIMIT 16;

-- name: rewrite
-- Another expectation: what is sent changes, and the key it is sent under does not.
UPDATE outbox SET payload = ?2 WHERE seq = ?1 AND status = 'pending';

-- name: reopen
-- From a conflict back to the queue, in its old place, as if it had never been tried: its key is a fresh one.
UPDATE outbox SET
    status = 'pending', payload = ?2, attempts = 0, server_errors = 0, next_attempt_at = ?3, last_error = ?4
WHERE seq = ?1 AND status = 'conflict';

-- name: condemn
-- An operator marks it dead.
UPDATE outbox SET status = 'dead', last_error = ?3 WHERE seq = ?1 AND status = ?2;

-- name: forget_answers
-- With its payload an old envelope loses both values of its conflict, and keeps what answers a retry.
UPDATE outbox SET theirs = NULL WHERE seq <= ?1 AND theirs IS NOT NULL AND payload = x'';

-- name: page
-- In the order of acceptance.
SELECT * FROM envelope_seen WHERE seq > ?1 ORDER BY seq LIMIT ?2;

-- name: page_of
-- As `page`, for one state; the states that are few have an index each.
SELECT * FROM envelope_seen WHERE seq > ?1 AND status = ?3 ORDER BY seq LIMIT ?2;

-- name: find
-- By the envelope's id or its key.
SELECT * FROM envelope_seen WHERE id = ?1 OR client_message_id = ?1 ORDER BY id = ?1 DESC LIMIT 1;

-- name: kept
-- What is kept of one envelope beside what a list shows.
SELECT theirs, answer_headers, answer FROM outbox WHERE seq = ?1;

-- name: happened
-- All that happened to it.
SELECT at, was, became, error, by, superseded_by FROM envelope_event WHERE envelope = ?1 ORDER BY seq;

-- name: blocked
-- How many wait behind one that is in conflict, and so for an operator.
SELECT count(*) FROM outbox AS conflict INDEXED BY outbox_conflict
JOIN outbox AS later
    ON later.destination = conflict.destination AND later.status IN ('pending', 'inflight', 'conflict')
WHERE conflict.status = 'conflict' AND later.status = 'pending';

-- name: begin_outage
-- The upstream is away; an outage that is not over goes on.
INSERT INTO outage (id, began_at, first_seq)
SELECT ?1, ?2, 1 + coalesce((SELECT max(seq) FROM outbox), 0)
WHERE NOT EXISTS (SELECT 1 FROM outage WHERE recovered_at IS NULL);

-- name: back_online
-- The upstream answers again; if it goes away once more before all is settled, it is the same outage.
UPDATE outage SET online_at = ?1 WHERE recovered_at IS NULL;

-- name: open_outage
-- The one that is not over, if there is one.
SELECT id, began_at, online_at, first_seq FROM outage WHERE recovered_at IS NULL;

-- name: end_outage
-- All that waited is settled.
UPDATE outage SET recovered_at = ?2 WHERE id = ?1 AND recovered_at IS NULL;

-- name: results
-- What became of all that was queued since an envelope.
SELECT status, count(*), sum(aborted_by IS 'coalesced') FROM outbox WHERE seq >= ?1 GROUP BY status;

-- name: export
-- Whole envelopes, for another machine or a closer look.
SELECT seq, id, client_message_id, request_fingerprint, destination, payload, enqueued_at, attempts, status,
    last_error, is_status_write
FROM outbox WHERE seq > ?1 ORDER BY seq LIMIT ?2;
