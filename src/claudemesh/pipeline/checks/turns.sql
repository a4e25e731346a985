-- What was promised to those who take turns: at work, at a document, at being there. As in `sends.sql`, from the log
-- alone, since what a store says of it now, it may have said otherwise before; but a ledger keeps what it said, and so
-- do the journals of leases and of a hub. Of a hub there is no mesh, and its own name stands for one.

-- name: double_claim
-- A lease is given once, and to one.
SELECT 'given ' || count(*) || ' times' AS what, mesh, key AS id, min(who) || ' ' || max(who) AS who,
  'token ' || version AS detail
FROM h WHERE f = 'claim' AND ev = 'ok' AND key <> '' GROUP BY mesh, key, version HAVING count(*) > 1
UNION ALL
SELECT 'held by ' || n.workers || ' workers', s.run, n.step_id, n.who, 'token ' || n.token || ' in ' || n.store
FROM (
  SELECT store, step_id, token, count(DISTINCT worker) AS workers, min(worker) || ' ' || max(worker) AS who
  FROM held GROUP BY store, step_id, token
) AS n
LEFT JOIN step AS s ON s.store = n.store AND s.step_id = n.step_id
WHERE n.workers > 1

-- name: token_went_back
-- Whoever asks after a lease was given gets a later one. Times of other machines, or of another start, say nothing;
-- the chain of a ledger does, and its step stands at the last token that it gave.
SELECT 'given after a later one' AS what, c.mesh, c.key AS id, c.who, 'token ' || c.version AS detail
FROM (
  SELECT mesh, key, who, version, asked, min(t) OVER (
    PARTITION BY mesh, key, boot ORDER BY version RANGE BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
  ) AS a_later_one
  FROM h WHERE f = 'claim' AND ev = 'ok' AND key <> ''
) AS c
WHERE c.a_later_one < c.asked
UNION ALL
SELECT r.kind || ' after a later one', s.run, r.step_id, r.worker, 'token ' || r.token || ' in ' || r.store
FROM (
  SELECT store, step_id, kind, worker, token, max(token) OVER (
    PARTITION BY store, step_id ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ) AS before
  FROM held WHERE seq IS NOT NULL
) AS r
LEFT JOIN step AS s ON s.store = r.store AND s.step_id = r.step_id
WHERE r.before > r.token
UNION ALL
SELECT 'forgotten by its step', s.run, s.step_id, '', 'token ' || n.token || ' in ' || s.store
FROM step AS s
JOIN (SELECT store, step_id, max(token) AS token FROM held GROUP BY store, step_id) AS n
  ON n.store = s.store AND n.step_id = s.step_id
WHERE n.token > s.fencing_token

-- name: zombie_done
-- Nobody finishes what by then was leased to somebody else; and where it was written down when a lease ended, nobody
-- after that.
SELECT 'done under an old lease' AS what, d.mesh, d.key AS id, d.who, 'token ' || d.version AS detail
FROM h AS d
JOIN h AS c ON c.mesh = d.mesh AND c.key = d.key AND c.f = 'claim' AND c.ev = 'ok' AND c.version > d.version
  AND c.boot = d.boot AND c.t < d.asked
WHERE d.f = 'done' AND d.ev = 'ok'
GROUP BY d.mesh, d.key, d.who, d.version
UNION ALL
SELECT
  CASE
    WHEN q.step_id IS NOT NULL THEN 'receipt for what was requeued'
    WHEN s.fencing_token > r.token THEN 'receipt under an old lease'
    ELSE 'receipt after the end of its lease'
  END,
  r.run, r.step_id, r.worker, 'token ' || r.token || ' in ' || r.store
FROM receipted AS r
JOIN step AS s ON s.store = r.store AND s.step_id = r.step_id
LEFT JOIN held AS q ON q.store = r.store AND q.step_id = r.step_id AND q.token = r.token AND q.kind = 'requeue'
WHERE q.step_id IS NOT NULL OR s.fencing_token > r.token OR r.at >= s.lease_expires_at

-- name: torn_commit
-- A step of a ledger is committed together with its receipt, of which there is one.
SELECT 'committed without a receipt' AS what, s.run AS mesh, s.step_id AS id, s.lease_owner AS who, s.store AS detail
FROM step AS s
LEFT JOIN receipted AS r ON r.store = s.store AND r.step_id = s.step_id
WHERE s.status = 'COMMITTED' AND r.receipt_id IS NULL
UNION ALL
SELECT 'receipt without a commit', r.run, r.step_id, r.worker, r.receipt_id || ' in ' || r.store
FROM receipted AS r
LEFT JOIN step AS s ON s.store = r.store AND s.step_id = r.step_id AND s.status = 'COMMITTED'
WHERE s.step_id IS NULL
UNION ALL
SELECT count(*) || ' receipts', min(run), step_id, min(worker) || ' ' || max(worker), store
FROM receipted GROUP BY store, step_id HAVING count(*) > 1

-- name: lost_update
-- Of several that start from one version, one gets through; a hub's line starts where the one before it of the same row
-- ended, and what a relay was told has replaced something has its line.
SELECT 'replaced by several' AS what, mesh, key AS id, min(who) || ' ' || max(who) AS who, 'version ' || id AS detail
FROM h WHERE f = 'swap' AND ev = 'ok' GROUP BY mesh, key, id HAVING count(DISTINCT version) > 1
UNION ALL
SELECT CASE WHEN deleted_before = 1 THEN 'written after it was deleted' ELSE 'starts elsewhere' END, store, id, who,
  'from ' || base_revision || ' after ' || coalesce(revision_before, 0)
FROM written WHERE base_revision <> coalesce(revision_before, 0) OR deleted_before = 1
UNION ALL
SELECT 'acknowledged and not written', r.store, r.destination, r.who, r.id
FROM relayed AS r
JOIN (SELECT count(*) AS hubs FROM hub_hub_state) AS known ON known.hubs > 0
LEFT JOIN written AS w ON w.key = r.key
WHERE r.is_acked = 1 AND r.route_class = 'replace' AND r.key IS NOT NULL AND w.key IS NULL

-- name: stale_overwrite
-- Nothing replaces a version that it does not start from. A base that nobody was told of was written by a call whose
-- answer got lost. Of a hub: what a write expected was so, and what a relay's write expected the hub was told.
SELECT 'skipped a version' AS what, s.mesh, s.key AS id, s.who, 'from ' || s.id || ' to ' || s.version AS detail
FROM (
  SELECT mesh, key, who, id, version, max(version) OVER (
    PARTITION BY mesh, key ORDER BY version RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ) AS before
  FROM h WHERE f = 'swap' AND ev = 'ok'
) AS s
WHERE s.before > cast(s.id AS bigint)
UNION ALL
SELECT 'not as expected', store, id, who, 'revision ' || revision
FROM written
WHERE instr(replace(replace(expected_revisions, '[', ','), ']', ','), ',' || base_revision || ',') = 0
  OR expected_updated_at <> coalesce(at_before, 0)
  OR expected_status <> coalesce(status_before, '')
UNION ALL
SELECT 'expected nothing any more', w.store, w.id, r.who, 'revision ' || w.revision || ', ' || r.id
FROM relayed AS r
JOIN written AS w ON w.key = r.key
WHERE (r.if_match IS NOT NULL AND w.expected_revisions IS NULL AND r.if_match <> '*')
  OR (r.expected_updated_at IS NOT NULL AND w.expected_updated_at IS NULL)
  OR (r.expected_status IS NOT NULL AND w.expected_status IS NULL)

-- name: presence_twice
-- Whoever watches is told once that somebody came, and once that they left; and so it is announced.
SELECT f || ' again' AS what, mesh, id, key AS who, 'told to ' || who AS detail
FROM told WHERE before = f
UNION ALL
SELECT what || ' again', mesh, id, who, 'number ' || seq || ' in ' || store
FROM announced WHERE before = what

-- name: left_before_joined
-- Nobody leaves who has not come. Whoever begins to watch notes those who are there. Nothing happens to a lease before
-- it begins; of one that began before all that is kept, nobody knows.
SELECT 'left' AS what, mesh, id, key AS who, 'told to ' || who AS detail
FROM told WHERE f = 'left' AND before IS NULL
UNION ALL
SELECT what, mesh, id, who, 'number ' || seq || ' in ' || store
FROM announced WHERE what = 'left' AND before IS NULL AND first_seq = 1
UNION ALL
SELECT what || ' before its lease began', mesh, id, who, 'event ' || number || ' in ' || store
FROM leased WHERE before IS NULL AND what NOT IN ('joined', 'begun') AND first_seq = 1

-- name: presence_gap
-- Whoever comes or goes has the next number of the mesh: by it others see what they missed. After a backup was restored
-- 2^40 are passed over, each time.
SELECT CASE WHEN seq = seq_before THEN 'numbered twice' ELSE 'numbers are missing' END AS what, mesh, id, who,
  'from ' || seq_before || ' to ' || seq || ' in ' || store AS detail
FROM announced WHERE seq <= seq_before OR (seq - seq_before - 1) % 1099511627776 <> 0

-- name: lease_after_end
-- A lease that ended is over: whoever comes back gets another.
SELECT what || ' after it ' || its_end AS what, mesh, id, who, 'event ' || number || ' in ' || store AS detail
FROM leased WHERE its_end IS NOT NULL

-- name: resume_replayed
-- A token to resume with is good for once; and a lease comes back as often as it was without a socket.
SELECT 'used ' || count(*) || ' times' AS what, mesh, id, min(who) || ' ' || max(who) AS who, '' AS detail
FROM h WHERE f = 'resume' AND ev = 'ok' GROUP BY mesh, id HAVING count(*) > 1
UNION ALL
SELECT 'online after ' || before, mesh, id, who, 'event ' || number || ' in ' || store
FROM leased WHERE what = 'online' AND before IN ('joined', 'begun', 'online', 'swapped')
