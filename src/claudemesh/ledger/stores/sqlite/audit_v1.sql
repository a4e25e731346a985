-- name: tokens
-- Nothing is claimed twice without a requeue, and version 1 has none.
SELECT 'step ' || step_id || ' has token ' || fencing_token || ', and is ' || status FROM cassette_steps
WHERE fencing_token <> CASE status WHEN 'PENDING' THEN 0 ELSE 1 END
