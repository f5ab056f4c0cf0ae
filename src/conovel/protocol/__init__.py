"""Messages and state machines: no IO, no model fitting."""
