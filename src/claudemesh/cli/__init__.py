"""The command line, `claudemesh`: a noun, a verb, and an exit code."""
