"""The local daemon: accepts sends durably, drains them to the broker in order, and keeps the inbox."""
