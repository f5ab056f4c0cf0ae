"""The drivers of all parties in memory, without NVFlare, for tests that make parts fail."""

from types import SimpleNamespace

from conovel.errors import ConovelError, SignatureError
from conovel.federation.consent import Limits
from conovel.federation.coordinator_driver import CoordinatorDriver, Replies
from conovel.federation.run_records import RunRecords
from conovel.federation.signatures import MessageSigner, MessageVerifier
from conovel.federation.site_driver import SiteDriver
from conovel.federation.site_files import SiteFiles
from conovel.federation.site_list import objection_to_list
from conovel.spec.bodies import COORDINATOR
from support.certificates import authority, credentials


class FakeNVFlare:
    """Carries messages between the drivers of the coordinator and the sites by calling them."""

    def __init__(self, terms, files, limits=None):
        self.terms, self.run_id = terms, terms.run_id
        self._verifiers = {}
        self.cut_off = set()  # parties that cannot be reached
        self.mute = set()  # parties whose messages are lost
        self.stopped = False
        self.replace = lambda sender, receiver, data: data  # what a relay does to messages
        self.authority = authority()
        self.coordinator = CoordinatorDriver(terms, self.post(COORDINATOR))
        self.sites = {
            name: self._site(name, file, (limits or {}).get(name, Limits()))
            for name, file in files.items()
        }

    def _site(self, name, file, limits):
        files = SiteFiles(file, self.terms)
        record = RunRecords(file.state, file.audit_log).open(
            self.terms.run_id, self.terms.run_seconds, terms=self.terms.to_log()
        )
        post = self.post(name)
        driver = SiteDriver(name, self.terms, limits, record, files, post)
        return SimpleNamespace(driver=driver, files=files, limits=limits, record=record)

    def post(self, sender):
        own = None if sender == COORDINATOR else MessageSigner(credentials(sender), self.run_id)

        def deliver(outbox):
            lost = {}
            for receiver, data in ((sent.receiver, sent.data) for sent in outbox):
                if receiver in self.cut_off or sender in self.cut_off:
                    lost[receiver] = "no answer in time"
                elif sender in self.mute:
                    continue
                elif own is None:
                    self.sites[receiver].driver.take(data, sender)
                else:
                    self._pass_on(sender, receiver, own(receiver, data))
            return lost

        return deliver

    def _pass_on(self, sender, receiver, data):
        """Hand a signed message over as the objects inside NVFlare do."""
        to_coordinator = receiver == COORDINATOR
        driver = self.coordinator if to_coordinator else self.sites[receiver].driver
        if receiver not in self._verifiers:
            self._verifiers[receiver] = MessageVerifier(self.authority, receiver, self.run_id)
        try:
            message = self._verifiers[receiver](sender, self.replace(sender, receiver, data))
        except SignatureError as error:
            driver.refuse(error, sender)
        else:
            driver.take(message, sender)

    def are_cut_off(self):
        return self.stopped

    def begin(self):
        def one(site):
            own = objection_to_list(self.terms, site.files.file)
            if objection := site.limits.objection(self.terms) or own:
                return objection
            if site.files.listing is None:
                site.driver.begin()
            return ""

        return self._call(self.sites, one)

    def ask(self, question, names, *values):
        return getattr(self, question)(names, *values)

    def ledger(self, names):
        return self._call(names, lambda site: site.driver.ledger(10))

    def agree(self, names, standings):
        return self._call(names, lambda site: site.driver.agree(standings, 10))

    def waiting(self, names):
        return self._call(names, lambda site: site.driver.waiting())

    def settle(self, names):
        return self._call(names, lambda site: site.driver.settle(10))

    def publish(self, names):
        return self._call(names, lambda site: site.driver.publish(10))

    def _call(self, names, call):
        replies = Replies()
        for name in names:
            try:
                if name in self.cut_off:
                    raise ConovelError("no answer in time")
                replies.values[name] = call(self.sites[name])
            except ConovelError as error:
                replies.failures[name] = str(error)
        return replies

    def run(self):
        return self.coordinator.run(self)
