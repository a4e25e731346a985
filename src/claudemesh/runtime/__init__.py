"""The only home of the real clock, entropy, environment and the end of the process."""
