"""Join a site and the protocol."""
