"""One page about any run: what was decided, what is guaranteed, and plots.

The path: a run's JSON → ``checked`` reading → a ``story`` of sections, ``tables`` and
``drawing`` marks → Jinja2 templates → one HTML file. The JSON may hold anything, so all of it is
checked and escaped.
"""

from __future__ import annotations

from conovel.report.list_numbers import lists_of
from conovel.report.page import page_of, render, write_report
from conovel.report.picture import of_detection
from conovel.report.run_pictures import correct_counts, network_content, of_files, of_network

__all__ = [
    "correct_counts",
    "lists_of",
    "network_content",
    "of_detection",
    "of_files",
    "of_network",
    "page_of",
    "render",
    "write_report",
]
