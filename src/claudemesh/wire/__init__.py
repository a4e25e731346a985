"""What crosses a process boundary, and its form there."""
