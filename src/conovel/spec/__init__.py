"""Frozen descriptions that all other layers share."""
