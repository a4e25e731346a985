-- name: notify
-- All of it in one commit.
SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload

-- name: probe
-- Whether the connection still is one.
SELECT 1
