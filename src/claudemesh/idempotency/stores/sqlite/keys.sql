-- name: standing
-- What stands under a key.
SELECT state, request_hash, owner, token, lease_boot, lease_until, expires_at, status, headers, body
FROM write_idempotency_keys WHERE caller = ?1 AND key = ?2

-- name: begin
-- The first mark under a key, or one in the place of what expired or died: then under a greater token.
INSERT INTO write_idempotency_keys (caller, key, method, path, request_hash, state, owner, token, lease_boot, lease_until,
  source_host, source_agent, first_seen, last_seen, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, 'in_progress', ?6, 1, ?7, ?8, ?9, ?10, ?11, ?11, ?12)
ON CONFLICT (caller, key) DO UPDATE SET method = excluded.method, path = excluded.path,
  request_hash = excluded.request_hash, state = 'in_progress', owner = excluded.owner, token = token + 1,
  lease_boot = excluded.lease_boot, lease_until = excluded.lease_until, status = NULL, headers = NULL, body = NULL,
  source_host = excluded.source_host, source_agent = excluded.source_agent,
  first_seen = CASE WHEN expires_at <= excluded.last_seen THEN excluded.first_seen ELSE first_seen END,
  last_seen = excluded.last_seen, expires_at = excluded.expires_at
RETURNING token

-- name: see
-- Somebody asked again.
UPDATE write_idempotency_keys SET last_seen = max(last_seen, ?3) WHERE caller = ?1 AND key = ?2

-- name: renew
-- The worker lives.
UPDATE write_idempotency_keys SET lease_boot = ?5, lease_until = ?6
WHERE caller = ?1 AND key = ?2 AND owner = ?3 AND token = ?4 AND state = 'in_progress'

-- name: settle
-- The write is answered. The token is the fence: of a mark that another worker took over nothing is changed.
UPDATE write_idempotency_keys SET state = ?5, status = ?6, headers = ?7, body = ?8
WHERE caller = ?1 AND key = ?2 AND owner = ?3 AND token = ?4 AND state = 'in_progress'

-- name: release
-- Nothing final was answered: the next request begins as if there had been none.
DELETE FROM write_idempotency_keys
WHERE caller = ?1 AND key = ?2 AND owner = ?3 AND token = ?4 AND state = 'in_progress'

-- name: sweep
-- Keys that expired, but for one that a worker is still at.
DELETE FROM write_idempotency_keys WHERE seq IN (
  SELECT seq FROM write_idempotency_keys
  WHERE expires_at <= ?1 AND NOT (state = 'in_progress' AND lease_boot = ?2 AND lease_until > ?3)
  ORDER BY expires_at LIMIT ?4
)

-- name: page
-- Keys for operators, in the order in which they were first seen.
SELECT seq, caller, key, method, path, state, status, request_hash, source_host, source_agent, first_seen, last_seen,
  expires_at
FROM write_idempotency_keys WHERE seq > ?1 ORDER BY seq LIMIT ?2
