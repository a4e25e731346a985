"""The jobs: each a pure function of frames. What they share is in `views`; which there are, in `..registry`."""
