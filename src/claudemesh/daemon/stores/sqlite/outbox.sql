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
    history_id = coalesce(?10, history_id)
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
