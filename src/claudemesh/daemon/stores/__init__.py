"""Where the daemon keeps its rows: one package a backend."""
