-- name: notify
-- All of it in one commit.
SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload

-- name: probe
-- Whether the connection still is one.
SELECT 1

-- name: offer_channel
-- Made once, and known only to whoever may read it here: any role of the database may notify by a name that it knows.
INSERT INTO mesh.broker_state (name, value) VALUES ('channel', $1) ON CONFLICT DO NOTHING

-- name: channel
-- The one in use.
SELECT value FROM mesh.broker_state WHERE name = 'channel'
