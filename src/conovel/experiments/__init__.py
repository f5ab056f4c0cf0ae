"""Experiments: data with known truth, to see what the guarantees mean in numbers."""
