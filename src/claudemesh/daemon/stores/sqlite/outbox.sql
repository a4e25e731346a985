-- name: insert_if_free
-- A taken id is left as it is; the number of changes tells whether any was.
INSERT INTO outbox (
    id, client_message_id, request_fingerprint, to_asked, destination, payload, enqueued_at, next_attempt_at, status
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, 'pending')
ON CONFLICT (client_message_id) DO NOTHING;

-- name: standing
-- What stands under an id, tombstones included.
SELECT id, status, request_fingerprint, to_asked, destination, broker_message_id, history_id, last_error
FROM outbox WHERE client_message_id = ?1;

-- name: newest_done
-- What the broker took last: its ids grow with time.
SELECT client_message_id FROM outbox WHERE broker_message_id IS NOT NULL AND status = 'done'
ORDER BY broker_message_id DESC LIMIT ?1;

-- name: settle
-- Apply an event to the state it was judged on.
UPDATE outbox SET
    status = ?3,
    attempts = attempts + ?4,
    server_errors = server_errors + ?5,
    next_attempt_at = ?6,
    last_error = ?7,
    delivered_at = coalesce(?8, delivered_at),
    broker_message_id = coalesce(?9, broker_message_id),
    history_id = coalesce(?10, history_id),
    decision = coalesce(?11, decision)
WHERE seq = ?1 AND status = ?2;

-- name: find
-- By the row's id, the caller's id or the broker's.
SELECT * FROM outbox_seen WHERE id = ?1 OR client_message_id = ?1 OR broker_message_id = ?1
ORDER BY id = ?1 DESC, client_message_id = ?1 DESC LIMIT 1;

-- name: page
-- In the order of acceptance.
SELECT * FROM outbox_seen WHERE seq > ?1 ORDER BY seq LIMIT ?2;

-- name: page_dead
-- As `page`, for those that wait for an operator.
SELECT * FROM outbox_seen WHERE seq > ?1 AND status = 'dead' ORDER BY seq LIMIT ?2;

-- name: page_open
-- As `page`, for what is still to be sent.
SELECT * FROM outbox_seen WHERE seq > ?1 AND status IN ('pending', 'inflight') ORDER BY seq LIMIT ?2;

-- name: forget_members
-- The directory is replaced as a whole: whoever is not in the broker's answer is gone.
DELETE FROM directory;

-- name: remember_member
-- One line of the directory.
INSERT INTO directory (member_id, name, name_folded, pubkey, role) VALUES (?1, ?2, ?3, ?4, ?5);

-- name: members
-- The whole directory; it is held in memory while the daemon runs.
SELECT member_id, name, pubkey, role FROM directory ORDER BY name_folded;

-- name: page_newest
-- As `page`, the newest first.
SELECT * FROM outbox_seen WHERE seq < ?1 ORDER BY seq DESC LIMIT ?2;

-- name: page_newest_dead
-- As `page_newest`, for those that wait for an operator.
SELECT * FROM outbox_seen WHERE seq < ?1 AND status = 'dead' ORDER BY seq DESC LIMIT ?2;

-- name: page_newest_open
-- As `page_newest`, for what is still to be sent: found in an index that holds nothing else.
SELECT * FROM outbox_seen WHERE seq IN (
    SELECT seq FROM outbox INDEXED BY outbox_by_age
    WHERE status IN ('pending', 'inflight') AND seq < ?1 ORDER BY seq DESC LIMIT ?2
) ORDER BY seq DESC;

-- name: sent
-- How many sends were asked for in each span of time, the newest so many of them; those given up are not counted.
-- What was asked for since an instant was taken by the broker since then, or waits, or is dead.
SELECT asked_at / :span_ms, count(*) FROM (
    SELECT * FROM (
        SELECT enqueued_at AS asked_at FROM outbox INDEXED BY outbox_by_accept
        WHERE status = 'done' AND delivered_at >= :since ORDER BY delivered_at DESC LIMIT :most
    )
    UNION ALL
    SELECT * FROM (
        SELECT enqueued_at AS asked_at FROM outbox INDEXED BY outbox_by_age
        WHERE status IN ('pending', 'inflight') AND enqueued_at >= :since ORDER BY enqueued_at DESC LIMIT :most
    )
    UNION ALL
    SELECT * FROM (
        SELECT enqueued_at AS asked_at FROM outbox INDEXED BY outbox_dead
        WHERE status = 'dead' ORDER BY seq DESC LIMIT :most
    )
) WHERE asked_at >= :since GROUP BY 1;

-- name: accepted
-- How many the broker took in each span of time, and how long it took: half of them, and 99 of 100, at most so long.
WITH recent AS MATERIALIZED (
    SELECT delivered_at / :span_ms AS span, max(delivered_at - enqueued_at, 0) AS took
    FROM outbox INDEXED BY outbox_by_accept
    WHERE status = 'done' AND delivered_at >= :since ORDER BY delivered_at DESC LIMIT :most
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

-- name: unsettled
-- What is not done: dead rows; open ones, since when the oldest waits, and how many are from before an instant.
SELECT
    (SELECT count(*) FROM outbox WHERE status = 'dead'),
    count(*),
    min(enqueued_at),
    coalesce(sum(enqueued_at < ?1), 0)
FROM outbox
WHERE status IN ('pending', 'inflight');
