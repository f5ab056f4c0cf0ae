"""Agents that learn one score together: each counts its own rows, and only sums leave it."""
