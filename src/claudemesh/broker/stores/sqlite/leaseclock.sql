-- name: kept
-- Where the clock stood when it was last written down.
SELECT value FROM broker_state WHERE name = 'lease_clock_ms'

-- name: keep
-- It stands here now.
INSERT INTO broker_state (name, value) VALUES ('lease_clock_ms', ?1)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
