"""Flat models whose numbers lie on grids."""
