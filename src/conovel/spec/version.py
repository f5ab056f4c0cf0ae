"""The version of this software: in messages, results and file headers."""

__version__ = "0.3.0"
