-- What the invariants are asked of, made from the tables of the stores in the order of this file, each from those
-- before it. Plain enough for SQLite and Spark alike; `sha2` is Spark's, and SQLite is given one. Outside of this
-- file meshes and members go by their ULIDs, as in the client's log.

-- name: tombstoned
-- Messages that retention deleted: their ids were used, and nothing of them is missed.
SELECT t.store, t.mesh_id, t.history_id, x.uid AS mesh, m.uid AS sender, t.client_message_id AS id, t.broker_message_id
FROM broker_tombstone AS t
JOIN broker_mesh AS x ON x.store = t.store AND x.id = t.mesh_id
LEFT JOIN broker_member AS m ON m.store = t.store AND m.id = t.sender_id
WHERE t.what = 'message'

-- name: forgotten
-- Ids that may be used anew, and how often that was so.
SELECT x.uid AS mesh, m.uid AS sender, t.client_message_id AS id, count(*) AS times
FROM broker_tombstone AS t
JOIN broker_mesh AS x ON x.store = t.store AND x.id = t.mesh_id
JOIN broker_member AS m ON m.store = t.store AND m.id = t.sender_id
WHERE t.what = 'dedupe' AND t.broker_message_id IS NOT NULL
GROUP BY x.uid, m.uid, t.client_message_id

-- name: stored
-- Messages that the broker keeps. Of what was sealed, or is in a lake without bodies, no body is known.
SELECT h.store, h.mesh_id, h.history_id, x.uid AS mesh, m.uid AS sender, h.client_message_id AS id,
  h.broker_message_id, h.kind,
  CASE
    WHEN t.topic_id IS NOT NULL THEN 'topic:' || t.topic_id
    WHEN q.queue_id IS NOT NULL THEN 'queue:' || q.queue_id
    ELSE 'dm:' || q.recipient_id
  END AS destination,
  d.request_fingerprint AS fingerprint,
  CASE WHEN b.encoding = 'plain' THEN sha2(b.body, 256) END AS body
FROM broker_message_history AS h
JOIN broker_mesh AS x ON x.store = h.store AND x.id = h.mesh_id
LEFT JOIN broker_member AS m ON m.store = h.store AND m.id = h.sender_id
LEFT JOIN broker_topic_message AS t ON t.store = h.store AND t.mesh_id = h.mesh_id AND t.history_id = h.history_id
LEFT JOIN broker_message_queue AS q ON q.store = h.store AND q.mesh_id = h.mesh_id AND q.history_id = h.history_id
LEFT JOIN broker_body AS b ON b.store = h.store AND b.mesh_id = h.mesh_id AND b.history_id = h.history_id
LEFT JOIN broker_client_message_dedupe AS d ON d.store = h.store AND d.sender_id = h.sender_id
  AND d.client_message_id = h.client_message_id AND d.broker_message_id = h.broker_message_id
LEFT JOIN tombstoned AS g ON g.store = h.store AND g.mesh_id = h.mesh_id AND g.history_id = h.history_id
WHERE g.store IS NULL

-- name: accepted
-- Messages that the broker ever took, as far as is known.
SELECT mesh, history_id, sender, id, broker_message_id FROM stored
UNION ALL
SELECT mesh, history_id, sender, id, broker_message_id FROM tombstoned

-- name: part
-- Which rows of an accept are there. A delivery counts if it is the one that the message asks for.
SELECT h.store, h.mesh_id, h.history_id, 'client_message_dedupe' AS part
FROM broker_message_history AS h
JOIN broker_client_message_dedupe AS d ON d.store = h.store AND d.sender_id = h.sender_id
  AND d.client_message_id = h.client_message_id AND d.broker_message_id = h.broker_message_id
UNION ALL
SELECT store, mesh_id, history_id, 'topic_message' FROM broker_topic_message
UNION ALL
SELECT store, mesh_id, history_id, 'message_queue' FROM broker_message_queue
UNION ALL
SELECT q.store, q.mesh_id, q.history_id, 'delivery_queue'
FROM broker_message_queue AS q
JOIN broker_delivery_queue AS x ON x.store = q.store AND x.mesh_id = q.mesh_id AND x.history_id = q.history_id
  AND x.recipient_id = coalesce(q.recipient_id, 0)
UNION ALL
SELECT store, mesh_id, history_id, 'queue_lease' FROM broker_queue_lease

-- name: delivery
-- What became of a message for each of its recipients, by the last that was noted of it.
SELECT s.mesh, s.history_id, s.broker_message_id, m.uid AS recipient,
  CASE
    WHEN e.dead > e.delivered THEN 'dead_letter'
    WHEN e.delivered = 0 OR e.returned > e.delivered THEN 'accepted'
    WHEN e.acted > 0 THEN 'acted'
    WHEN e.was_read > 0 THEN 'read'
    ELSE 'delivered'
  END AS state,
  CASE WHEN e.returned > 0 OR e.dead > 0 THEN 1 ELSE 0 END AS took_a_detour
FROM (
  SELECT x.store, x.mesh_id, x.history_id, x.recipient_id,
    max(CASE WHEN v.what = 'delivered' THEN v.id ELSE 0 END) AS delivered,
    max(CASE WHEN v.what = 'returned' THEN v.id ELSE 0 END) AS returned,
    max(CASE WHEN v.what = 'dead' THEN v.id ELSE 0 END) AS dead,
    max(CASE WHEN v.what = 'read' THEN v.id ELSE 0 END) AS was_read,
    max(CASE WHEN v.what = 'acted' THEN v.id ELSE 0 END) AS acted
  FROM broker_delivery_queue AS x
  LEFT JOIN broker_delivery_event AS v ON v.store = x.store AND v.mesh_id = x.mesh_id
    AND v.history_id = x.history_id AND v.recipient_id = x.recipient_id
  GROUP BY x.store, x.mesh_id, x.history_id, x.recipient_id
) AS e
JOIN stored AS s ON s.store = e.store AND s.mesh_id = e.mesh_id AND s.history_id = e.history_id
LEFT JOIN broker_member AS m ON m.store = e.store AND m.id = e.recipient_id

-- name: received
-- What inboxes hold; those that do not say whose they are are left out.
SELECT i.store, o.owner, o.mesh, i.seq, i.sender_id AS sender, i.client_message_id AS id, i.broker_message_id,
  i.history_id, coalesce(i.topic, '') AS topic, CASE WHEN b.body IS NOT NULL THEN sha2(b.body, 256) END AS body
FROM inbox_inbox AS i
JOIN inbox_owner AS o ON o.store = i.store
LEFT JOIN inbox_body AS b ON b.store = i.store AND b.seq = i.seq AND b.broker_message_id = i.broker_message_id

-- name: queued
-- What outboxes hold, whatever became of it; also of one that does not say whose it is.
SELECT o.store, w.owner, w.mesh, o.seq, o.client_message_id AS id, o.request_fingerprint AS fingerprint, o.destination,
  o.status, o.broker_message_id, o.history_id, CASE WHEN p.id IS NULL THEN 0 ELSE 1 END AS is_successor
FROM outbox_outbox AS o
LEFT JOIN outbox_owner AS w ON w.store = o.store
LEFT JOIN outbox_outbox AS p ON p.store = o.store AND p.superseded_by = o.id

-- name: sent
-- What the log says of each id that somebody tried to send. A call without an answer may have come true.
SELECT mesh, who, id, min(CASE WHEN ev = 'invoke' THEN asked END) AS first_asked,
  min(CASE WHEN ev = 'ok' THEN t END) AS first_ok,
  max(process) AS process, min(process) AS other_process,
  sum(CASE WHEN ev = 'invoke' THEN 1 ELSE 0 END) AS asked_times,
  sum(CASE WHEN ev = 'ok' THEN 1 ELSE 0 END) AS ok_times,
  sum(CASE WHEN ev = 'fail' THEN 1 ELSE 0 END) AS fail_times
FROM h WHERE f = 'send' GROUP BY mesh, who, id

-- name: told
-- Who came and who left, as somebody was told, with what they were told of the same one before.
SELECT mesh, who, key, id, f, lag(f) OVER (PARTITION BY mesh, who, process, key, id ORDER BY n) AS before
FROM h WHERE f IN ('joined', 'left') AND ev = 'ok'

-- name: leased
-- What happened to leases, with what happened to the same one before it, and the first number of its mesh that is
-- known. What is swept, is swept from the beginning: a mesh that is known from its first number on is known wholly.
SELECT e.store, e.mesh_id, x.uid AS mesh, e.member_id, m.uid AS who, e.session_pubkey, e.presence_uid AS id, e.what,
  e.id AS number, e.seq,
  lag(e.what) OVER (PARTITION BY e.store, e.presence_uid ORDER BY e.id) AS before,
  max(CASE WHEN e.what IN ('left', 'ended') THEN e.what END) OVER (
    PARTITION BY e.store, e.presence_uid ORDER BY e.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ) AS its_end,
  min(e.seq) OVER (PARTITION BY e.store, e.mesh_id) AS first_seq
FROM broker_presence_event AS e
JOIN broker_mesh AS x ON x.store = e.store AND x.id = e.mesh_id
LEFT JOIN broker_member AS m ON m.store = e.store AND m.id = e.member_id

-- name: announced
-- Who came and who left, in the order in which all are told, with what they are told of the same key before.
SELECT store, mesh, who, session_pubkey, id, what, seq, first_seq,
  lag(what) OVER (PARTITION BY store, mesh_id, member_id, session_pubkey ORDER BY seq, number) AS before,
  lag(seq) OVER (PARTITION BY store, mesh_id ORDER BY seq, number) AS seq_before
FROM leased WHERE seq IS NOT NULL

-- name: step
-- Steps of ledgers. What a mesh is elsewhere is here the run that a step belongs to.
SELECT s.store, m.run_id AS run, s.step_id, s.status, s.lease_owner, s.lease_expires_at, s.fencing_token
FROM ledger_cassette_steps AS s
LEFT JOIN ledger_cassette_jobs AS j ON j.store = s.store AND j.job_id = s.job_id
LEFT JOIN ledger_cassette_messages AS m ON m.store = j.store AND m.message_id = j.message_id

-- name: receipted
-- Receipts of ledgers.
SELECT r.store, m.run_id AS run, r.step_id, r.receipt_id, r.worker_id AS worker, r.fencing_token AS token,
  r.created_at AS at
FROM ledger_cassette_receipts AS r
LEFT JOIN ledger_cassette_jobs AS j ON j.store = r.store AND j.job_id = r.job_id
LEFT JOIN ledger_cassette_messages AS m ON m.store = j.store AND m.message_id = j.message_id

-- name: held
-- Who held a step under which token, by all that its ledger recorded; `seq` is the place in the order of commits of
-- what is chained.
SELECT r.store, r.step_id, r.kind, r.worker, r.token, c.seq
FROM (
  SELECT store, step_id, 'receipt' AS kind, receipt_id AS row_id, worker, token FROM receipted
  UNION ALL
  SELECT store, step_id, 'requeue', requeue_id, worker_id, fencing_token FROM ledger_cassette_requeues
  UNION ALL
  SELECT store, step_id, 'renewal', renewal_id, worker_id, fencing_token FROM ledger_cassette_renewals
  UNION ALL
  SELECT store, step_id, 'lease', step_id, lease_owner, fencing_token FROM step WHERE lease_owner IS NOT NULL
) AS r
LEFT JOIN ledger_cassette_chain AS c ON c.store = r.store AND c.kind = r.kind AND c.row_id = r.row_id

-- name: written
-- The lines of hubs' journals, each with what its row was before it.
SELECT store, seq, kind || '/' || entity_id AS id, base_revision, revision, idempotency_key AS key,
  source_agent AS who, expected_revisions, expected_updated_at, expected_status,
  lag(revision) OVER (PARTITION BY store, kind, entity_id ORDER BY seq) AS revision_before,
  lag(at) OVER (PARTITION BY store, kind, entity_id ORDER BY seq) AS at_before,
  lag(status) OVER (PARTITION BY store, kind, entity_id ORDER BY seq) AS status_before,
  lag(deleted) OVER (PARTITION BY store, kind, entity_id ORDER BY seq) AS deleted_before
FROM hub_hub_write

-- name: relayed
-- Envelopes of relays, and whether their callers were ever told that the hub has them. One that found its values there
-- already wrote nothing; of one that was emptied nobody knows the key.
SELECT o.store, o.seq, o.id, o.key, o.method, o.destination, o.route_class, o.if_match, o.expected_updated_at,
  o.expected_status, o.source_agent AS who,
  CASE WHEN coalesce(o.last_error, '') = 'already_there' THEN 0 WHEN o.status = 'done' OR e.envelope IS NOT NULL THEN 1
    ELSE 0 END AS is_acked
FROM relay_outbox AS o
LEFT JOIN (SELECT DISTINCT store, envelope FROM relay_envelope_event WHERE became = 'done') AS e
  ON e.store = o.store AND e.envelope = o.seq
