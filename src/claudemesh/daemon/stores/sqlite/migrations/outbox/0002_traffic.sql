-- What the broker took, by when it did, with when it was asked for: traffic and latency are read from this alone.
CREATE INDEX outbox_by_accept ON outbox (delivered_at, enqueued_at) WHERE status = 'done';
