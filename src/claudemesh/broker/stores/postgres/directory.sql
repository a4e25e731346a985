-- name: mesh_by_uid
-- A mesh as the wire names it.
SELECT id, uid, slug, policy, sends_per_window FROM mesh.mesh WHERE uid = $1

-- name: mesh_by_owner
-- The mesh that this key made under this slug.
SELECT id, uid, slug, policy, sends_per_window FROM mesh.mesh WHERE slug = $1 AND owner_pubkey = $2

-- name: create_mesh
-- A new mesh; of two brokers that make the same at once the second waits, and gets none.
INSERT INTO mesh.mesh (uid, slug, owner_pubkey, created_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (slug, owner_pubkey) DO NOTHING
RETURNING id

-- name: create_counter
-- Its order begins.
INSERT INTO mesh.history_counter (mesh_id) VALUES ($1)

-- name: lock_meshes
-- Who is a member, and as what, is judged by one at a time.
SELECT id FROM mesh.mesh WHERE id = ANY($1::bigint[]) ORDER BY id FOR NO KEY UPDATE

-- name: member
-- A member by its key in force.
SELECT id, uid, mesh_id, pubkey, name, role, about, joined_at, revoked_at FROM mesh.member
WHERE mesh_id = $1 AND pubkey = $2

-- name: members
-- Everybody who is in the mesh.
SELECT id, uid, mesh_id, pubkey, name, role, about, joined_at, revoked_at FROM mesh.member
WHERE mesh_id = $1 AND revoked_at IS NULL ORDER BY id

-- name: member_by_id
-- A member as the stores know it.
SELECT id, uid, mesh_id, pubkey, name, role, about, joined_at, revoked_at FROM mesh.member WHERE id = $1

-- name: member_by_name
-- A member as people call it, also if it is revoked.
SELECT id, uid, mesh_id, pubkey, name, role, about, joined_at, revoked_at FROM mesh.member
WHERE mesh_id = $1 AND name_folded = $2

-- name: owners
-- How many own the mesh.
SELECT count(*) FROM mesh.member WHERE mesh_id = $1 AND role = 'owner' AND revoked_at IS NULL

-- name: set_role
-- From now on.
UPDATE mesh.member SET role = $2 WHERE id = $1

-- name: set_about
-- What it says of itself, unless it was revoked.
UPDATE mesh.member SET about = $2 WHERE id = $1 AND revoked_at IS NULL RETURNING true

-- name: revoke
-- For good: neither its key nor its name comes back. Its seats go with it, so that no broker delivers to it any more,
-- whether it hears of this or not.
WITH unseated AS (DELETE FROM mesh.seat WHERE member_id = $1)
UPDATE mesh.member SET revoked_at = $2 WHERE id = $1

-- name: end_subscriptions
-- Nothing more that is posted waits for it.
UPDATE mesh.topic_subscription SET ended_at = $2 WHERE member_id = $1 AND ended_at IS NULL

-- name: set_mesh
-- What is not said stays.
UPDATE mesh.mesh SET policy = coalesce($2, policy), sends_per_window = coalesce($3, sends_per_window) WHERE id = $1
RETURNING id, uid, slug, policy, sends_per_window

-- name: add_member
-- A new member.
INSERT INTO mesh.member (uid, mesh_id, pubkey, name, name_folded, role, joined_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
RETURNING id

-- name: key_holder
-- Whose key this is or was.
SELECT member_id FROM mesh.member_key WHERE mesh_id = $1 AND pubkey = $2

-- name: known_keys
-- Those that a message would find somebody by.
SELECT k.pubkey FROM mesh.member_key AS k JOIN mesh.member AS m ON m.id = k.member_id
WHERE k.mesh_id = $1 AND k.pubkey = ANY($2::text[]) AND m.revoked_at IS NULL

-- name: add_key
-- A key leads to a member from now on, unless it leads to somebody already.
INSERT INTO mesh.member_key (mesh_id, pubkey, member_id, kind, added_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING
RETURNING true

-- name: invite_uses
-- How many joined by an invite.
SELECT count(*) FROM mesh.invite_use WHERE mesh_id = $1 AND invite_id = $2

-- name: use_invite
-- One more did.
INSERT INTO mesh.invite_use (mesh_id, invite_id, member_id, used_at) VALUES ($1, $2, $3, $4)
