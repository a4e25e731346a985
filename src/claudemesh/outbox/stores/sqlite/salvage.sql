-- name: read_from
-- One row of a damaged file, with all there is of it, so that one that cannot be read costs no other.
SELECT * FROM outbox WHERE seq >= ?1 ORDER BY seq LIMIT 1;

-- name: write
-- The same into a new file of the same schema; of two rows that claim one id the first stands.
INSERT OR IGNORE INTO outbox VALUES (?);
