"""Rows of a site in files that do not fit into memory."""
