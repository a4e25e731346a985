-- What came, by when it did, with when the broker took it: traffic and latency are read from this alone.
CREATE INDEX inbox_by_time ON inbox (received_at, accepted_at);

-- When sends were given up.
CREATE INDEX event_of_the_dead ON event (at) WHERE type = 'outbox_dead';
