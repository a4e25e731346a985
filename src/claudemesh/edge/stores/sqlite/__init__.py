"""Envelopes in edge/outbox.db."""
