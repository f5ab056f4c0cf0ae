"""One organisation's work on its own rows."""
