"""The jobs: each a pure function of frames. What they share is in `views`; what there is, in `registry`."""
