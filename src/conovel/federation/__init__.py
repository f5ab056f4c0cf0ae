"""Runs between organisations: the protocol over NVFlare's Collab API.

::

    cli ─► settings (TOML) ─► kits, enrolment, processes, operator
                                        │ job: Terms, signed
               apps (NVFlare) ─► CoordinatorDriver at the coordinator, SiteDriver at every site
                                        │ Outbox
                     conovel.protocol.coordinator, conovel.protocol.agent

Only :mod:`~conovel.federation.apps`, ``encryption`` and ``presence``, which run inside
NVFlare's processes, and ``session``, which operators use, import NVFlare. The drivers
:class:`~.coordinator_driver.CoordinatorDriver` and :class:`~.site_driver.SiteDriver` keep
deadlines, consent and records, but do not know how bytes are sent. A job holds
:class:`~.terms.Terms`: names and numbers, never a path, a class or code.
"""
