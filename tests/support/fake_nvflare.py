"""The drivers of all parties in memory, without NVFlare, for tests that make parts fail."""

from types import SimpleNamespace

from conovel.drivers.nvflare.consent import Limits
from conovel.drivers.nvflare.coordinator_driver import CoordinatorDriver, Replies
from conovel.drivers.nvflare.run_records import RunRecords
from conovel.drivers.nvflare.site_driver import SiteDriver
from conovel.drivers.nvflare.site_files import SiteFiles
from conovel.errors import ConovelError
from conovel.protocol.messages import COORDINATOR


class FakeNVFlare:
    """Carries messages between the drivers of the coordinator and the sites by calling them."""

    def __init__(self, terms, files, limits=None):
        self.terms = terms
        self.cut_off = set()  # parties that cannot be reached
        self.mute = set()  # parties whose messages are lost
        self.stopped = False
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
        driver = SiteDriver(
            name, self.terms, limits, record, files.open, post, files.publish, files.digest
        )
        return SimpleNamespace(driver=driver, files=files, limits=limits, record=record)

    def post(self, sender):
        def deliver(outbox):
            lost = {}
            for receiver, data in ((sent.receiver, sent.data) for sent in outbox):
                if receiver in self.cut_off or sender in self.cut_off:
                    lost[receiver] = "no answer in time"
                elif sender in self.mute:
                    continue
                elif receiver == COORDINATOR:
                    self.coordinator.take(data, sender)
                else:
                    self.sites[receiver].driver.take(data, sender)
            return lost

        return deliver

    def are_cut_off(self):
        return self.stopped

    def begin(self, terms):
        def one(site):
            if objection := site.limits.objection(self.terms):
                return objection
            site.driver.begin()
            return ""

        return self._call(self.sites, one)

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
