-- name: begin
-- The first mark under a key, in one step; nothing, if the key is taken.
INSERT INTO write_idempotency_keys (caller, key, method, path, request_hash, state, owner, token, lease_until,
  source_host, source_agent, first_seen, last_seen, expires_at)
VALUES ($1, $2, $3, $4, $5, 'in_progress', $6, 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $7::bigint,
  $8, $9, $10::bigint, $10, $11)
ON CONFLICT (caller, key) DO NOTHING
RETURNING token

-- name: standing
-- What stands under a key, held until the commit; the time is read once it is.
WITH held AS MATERIALIZED (
  SELECT state, request_hash, owner, token, lease_until, expires_at, status, headers, body
  FROM write_idempotency_keys WHERE caller = $1 AND key = $2
  FOR UPDATE
)
SELECT *, (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS lease_now FROM held

-- name: take_over
-- A mark in the place of what expired or died, under a greater token.
UPDATE write_idempotency_keys AS k SET method = $3, path = $4, request_hash = $5, state = 'in_progress', owner = $6,
  token = k.token + 1, lease_until = (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $7::bigint,
  status = NULL, headers = NULL, body = NULL, source_host = $8, source_agent = $9,
  first_seen = CASE WHEN k.expires_at <= $10::bigint THEN $10 ELSE k.first_seen END, last_seen = $10, expires_at = $11
WHERE caller = $1 AND key = $2
RETURNING token

-- name: see
-- Somebody asked again.
UPDATE write_idempotency_keys SET last_seen = greatest(last_seen, $3) WHERE caller = $1 AND key = $2

-- name: renew
-- The worker lives.
UPDATE write_idempotency_keys SET lease_until = (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $5::bigint
WHERE caller = $1 AND key = $2 AND owner = $3 AND token = $4 AND state = 'in_progress'
RETURNING true

-- name: settle
-- The write is answered. The token is the fence: of a mark that another worker took over nothing is changed.
UPDATE write_idempotency_keys SET state = $5, status = $6, headers = $7, body = $8
WHERE caller = $1 AND key = $2 AND owner = $3 AND token = $4 AND state = 'in_progress'
RETURNING true

-- name: release
-- Nothing final was answered: the next request begins as if there had been none.
DELETE FROM write_idempotency_keys
WHERE caller = $1 AND key = $2 AND owner = $3 AND token = $4 AND state = 'in_progress'
RETURNING true

-- name: sweep
-- Keys that expired, but for one that a worker is still at, or is just now asking for. Looked for once: as `IN (…)` a
-- plan may look anew for each row, past the limit.
DELETE FROM write_idempotency_keys WHERE seq = ANY(ARRAY(
  SELECT seq FROM write_idempotency_keys
  WHERE expires_at <= $1
    AND NOT (state = 'in_progress' AND lease_until > (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
  ORDER BY expires_at LIMIT $2
  FOR UPDATE SKIP LOCKED
))
RETURNING seq

-- name: page
-- Keys for operators, in the order in which they were first seen.
SELECT seq, caller, key, method, path, state, status, request_hash, source_host, source_agent, first_seen, last_seen,
  expires_at
FROM write_idempotency_keys WHERE seq > $1 ORDER BY seq LIMIT $2
