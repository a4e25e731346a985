-- What was promised to those who write through a relay, if hubs are there to ask: a relay's envelope and a hub's line
-- have the key in common. As in `sends.sql`; there is no mesh, and the store's own name stands for one.

-- name: edge_append_lost
-- What was acknowledged is in a journal. Only what makes a row is asked for: who marks as read what is read, writes nothing.
SELECT 'acknowledged' AS what, r.store AS mesh, r.id, r.who, r.method || ' under ' || r.key AS detail
FROM relayed AS r
JOIN (SELECT count(*) AS hubs FROM hub_hub_state) AS known ON known.hubs > 0
LEFT JOIN written AS w ON w.key = r.key
WHERE r.is_acked = 1 AND r.route_class = 'append' AND r.method = 'POST' AND r.key IS NOT NULL AND w.key IS NULL

-- name: edge_append_doubled
-- However often an append was tried, it made one row.
SELECT 'written ' || count(*) || ' times' AS what, r.store AS mesh, r.id, min(r.who) AS who,
  min(w.id) || ' ' || max(w.id) AS detail
FROM relayed AS r
JOIN written AS w ON w.key = r.key
WHERE r.route_class = 'append'
GROUP BY r.store, r.id, w.store HAVING count(*) > 1

-- name: edge_order
-- The writes of one relay to one row are applied in the order in which it took them.
SELECT 'overtaken' AS what, n.store AS mesh, n.id, n.who, n.destination || ', line ' || n.line AS detail
FROM (
  SELECT r.store, r.id, r.who, r.destination, w.seq AS line, max(w.seq) OVER (
    PARTITION BY r.store, r.destination, w.store ORDER BY r.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ) AS before
  FROM relayed AS r
  JOIN written AS w ON w.key = r.key
  WHERE r.is_acked = 1
) AS n
WHERE n.before > n.line
