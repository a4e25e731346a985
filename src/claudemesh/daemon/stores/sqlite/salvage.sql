-- name: read_from
-- One row of a damaged file, with all there is of it, so that one that cannot be read costs no other.
SELECT
    seq, id, client_message_id, request_fingerprint, to_asked, destination, payload, enqueued_at, attempts,
    server_errors, next_attempt_at, status, last_error, delivered_at, broker_message_id, history_id, aborted_at,
    aborted_by, superseded_by
FROM outbox WHERE seq >= ?1 ORDER BY seq LIMIT 1;

-- name: write
-- The same into a new file; of two rows that claim one id the first stands.
INSERT OR IGNORE INTO outbox (
    seq, id, client_message_id, request_fingerprint, to_asked, destination, payload, enqueued_at, attempts,
    server_errors, next_attempt_at, status, last_error, delivered_at, broker_message_id, history_id, aborted_at,
    aborted_by, superseded_by
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);
