"""Where envelopes wait."""
