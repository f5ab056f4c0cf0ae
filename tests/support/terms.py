"""Terms of a run from one flat list of settings."""

from conovel.drivers.nvflare.terms import Terms
from conovel.spec.run_spec import RunSpec

OWN = ("run_id", "call_seconds", "stage_seconds", "run_seconds", "list_name")


def make_terms(agents, **settings):
    own = {name: settings.pop(name) for name in OWN if name in settings}
    return Terms(agents, RunSpec.of(**settings), **own)


def changed_terms(plain, **change):
    """Change settings of terms that are JSON types; unknown ones are added beside the spec."""
    spec = {name: change.pop(name) for name in list(change) if name in plain["spec"]}
    return plain | change | {"spec": plain["spec"] | spec}
