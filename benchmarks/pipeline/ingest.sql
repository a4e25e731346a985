-- name: sqlite
-- A broker's rows in bulk: direct messages, of which each was delivered.
INSERT INTO mesh (id, uid, slug, owner_pubkey, created_at) VALUES (1, 'M', 'bench', 'k', 1);
INSERT INTO history_counter (mesh_id, history_id) VALUES (1, $messages);
CREATE TEMP TABLE n (n INTEGER PRIMARY KEY);
INSERT INTO n WITH RECURSIVE counted (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < $messages)
SELECT n FROM counted;
INSERT INTO client_message_dedupe SELECT 1, printf('client-message-%012d', n), 1, 'accepted', randomblob(32),
  printf('01BROKERMESSAGE%011d', n), n, 1, 1700000000000 + n, NULL FROM n;
INSERT INTO message_history SELECT 1, n, printf('01BROKERMESSAGE%011d', n), 1, printf('client-message-%012d', n), 'dm',
  1700000000000 + n, n FROM n;
INSERT INTO message_queue (
  mesh_id, history_id, recipient_id, ref, reply_to, priority, meta, encoding, body
) SELECT 1, n, 2, 'key', '', 'next', '', 'plain', hex(randomblob(100)) FROM n;
INSERT INTO delivery_queue (mesh_id, history_id, recipient_id, delivered_at) SELECT 1, n, 2, 1700000000050 + n FROM n;
INSERT INTO delivery_event (mesh_id, history_id, recipient_id, what, at, attempts)
SELECT 1, n, 2, 'delivered', 1700000000050 + n, 0 FROM n;

-- name: postgres
-- The same.
INSERT INTO mesh.mesh (uid, slug, owner_pubkey, created_at) VALUES ('M', 'bench', 'k', 1);
INSERT INTO mesh.history_counter (mesh_id, history_id) VALUES (1, $messages);
INSERT INTO mesh.client_message_dedupe (sender_id, client_message_id, mesh_id, state, request_fingerprint,
  broker_message_id, history_available, first_seen_at)
SELECT 1, 'client-message-' || lpad(n::text, 12, '0'), 1, 'accepted', sha256(n::text::bytea),
  '01BROKERMESSAGE' || lpad(n::text, 11, '0'), true, 1700000000000 + n FROM generate_series(1, $messages) AS n;
INSERT INTO mesh.message_history (mesh_id, history_id, broker_message_id, sender_id, client_message_id, kind,
  accepted_at, sender_seq)
SELECT 1, n, '01BROKERMESSAGE' || lpad(n::text, 11, '0'), 1, 'client-message-' || lpad(n::text, 12, '0'), 'dm',
  1700000000000 + n, n FROM generate_series(1, $messages) AS n;
INSERT INTO mesh.message_queue (mesh_id, history_id, recipient_id, ref, reply_to, priority, meta, encoding, body)
SELECT 1, n, 2, 'key', '', 'next', '', 'plain', repeat(md5(n::text), 6) FROM generate_series(1, $messages) AS n;
INSERT INTO mesh.delivery_queue (mesh_id, history_id, recipient_id, delivered_at)
SELECT 1, n, 2, 1700000000050 + n FROM generate_series(1, $messages) AS n;
INSERT INTO mesh.delivery_event (mesh_id, history_id, recipient_id, what, at, attempts)
SELECT 1, n, 2, 'delivered', 1700000000050 + n, 0 FROM generate_series(1, $messages) AS n;
VACUUM ANALYZE;
