"""Exit codes of the command line: an error is never mistaken for an answer.

Every command uses these, also for errors with numbers of their own (:mod:`conovel.errors`):
"""

from __future__ import annotations

YES = 0  # the command did its work and, where it answers a question, the answer is yes
FAILED = 1  # conovel ended in a way that nobody foresaw, as Python does by itself
ERROR = 2  # the input, a file or a setting cannot be used: nothing was answered
NO = 3  # the command did its work, and the answer is no
