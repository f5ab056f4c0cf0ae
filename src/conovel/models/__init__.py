"""Flat models and their bytes; no scikit-learn."""
