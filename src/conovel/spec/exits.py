"""Exit codes of the command line: an error is never mistaken for an answer.

0 if a command did its work and, where it answers a question, the answer is yes. 1 only if conovel
ends in a way that nobody foresaw, as Python does by itself. Every command uses these two:
"""

from __future__ import annotations

ERROR = 2  # the input, a file or a setting cannot be used: nothing was answered
NO = 3  # the command did its work, and the answer is no
