"""Measurements that back the project's claims; see README.md in this folder."""
