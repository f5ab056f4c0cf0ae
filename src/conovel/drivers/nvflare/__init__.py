"""Between organisations: the same protocol as in one process, over NVFlare's Collab API.

::

    cli ─► settings (TOML) ─► kits, processes, operator
                                        │ job: Terms
               apps (NVFlare) ─► CoordinatorDriver at the coordinator, SiteDriver at every site
                                        │ Outbox
                     conovel.protocol.coordinator, conovel.protocol.agent

NVFlare's classes are touched by :mod:`~conovel.drivers.nvflare.apps` and ``presence`` inside its
processes and by ``session`` for operators, and nowhere else. A
:class:`~.coordinator_driver.CoordinatorDriver` and a :class:`~.site_driver.SiteDriver` know how to
keep deadlines, consent and records, but not how bytes travel. What a job may say is
:class:`~.terms.Terms`: names and numbers, never a path, a class or code.
"""
