"""Why a row was flagged."""
