"""Terms of a run from one flat list of settings."""

from conovel.federation.certificates import OPERATOR_ROLE
from conovel.federation.signatures import as_der, sign
from conovel.federation.terms import Terms
from conovel.spec.run_spec import RunSpec, canonical_json, run_id_of_terms
from support.certificates import OPERATOR, credentials

OWN = ("run_id", "call_seconds", "stage_seconds", "run_seconds", "list_name")


def make_terms(agents, **settings):
    own = {name: settings.pop(name) for name in OWN if name in settings}
    return Terms(agents, RunSpec.of(**settings), **own)


def changed_terms(plain, **change):
    """Change settings of terms that are JSON types; unknown ones are added beside the spec."""
    spec = {name: change.pop(name) for name in list(change) if name in plain["spec"]}
    return plain | change | {"spec": plain["spec"] | spec}


def signed_terms(plain, own=None):
    """Sign what an operator may have written, also what are no terms."""
    own = own or credentials(OPERATOR, OPERATOR_ROLE)
    return {
        "terms": plain,
        "signature": sign(own.key, ("terms",), canonical_json(plain)).hex(),
        "certificate": as_der(own.certificate).hex(),
    }


def with_own_id(plain):
    """Give changed terms the run id that follows from them."""
    return plain | {"run_id": run_id_of_terms(plain)}
