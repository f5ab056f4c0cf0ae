"""A page at the site: runs, consent, what left, and verdicts, for the people who work there.

The path: a request → ``guard`` (who asks, and from where) → ``app`` (which page) → ``site_view``,
``batches`` and ``words`` (what the site's own files say) → Jinja2 templates. Nothing is loaded
from elsewhere, and no page has a script. Values come from rows and from other parties, so all of
them are escaped.
"""
