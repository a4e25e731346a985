"""What an agent host is told about claudemesh, and what it hears from it: `install`, `uninstall` and the hooks."""
