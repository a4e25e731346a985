-- Which decision of an operator found that the broker had the row all along: who takes it again is answered as then.
ALTER TABLE outbox ADD COLUMN decision TEXT;

DROP VIEW outbox_seen;
CREATE VIEW outbox_seen AS
SELECT
    seq, id, client_message_id, status, to_asked, destination, attempts, enqueued_at, next_attempt_at, last_error,
    delivered_at, broker_message_id, history_id, request_fingerprint, aborted_at, aborted_by, superseded_by, decision
FROM outbox;
