"""One Hypothesis profile for every run: the same examples each time, and no deadline.

`HYPOTHESIS_PROFILE=explore` draws fresh examples, and more of them.
"""

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
