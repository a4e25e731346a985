-- name: created
-- How often the hub created something under each key.
SELECT kind, idempotency_key, count(*) FROM hub_write WHERE base_revision = 0 GROUP BY kind, idempotency_key;

-- name: rows
-- What the hub holds of a kind.
SELECT fields FROM entity WHERE kind = ?1 ORDER BY seq;

-- name: envelopes
-- What became of every envelope of the relay.
SELECT client_message_id, to_asked, status, aborted_by FROM outbox ORDER BY seq;
