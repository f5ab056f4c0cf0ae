"""The public namespace: its names and signatures, what others rely on, and how fast it comes."""

import difflib
import inspect
import subprocess
import sys
import textwrap
from functools import cached_property
from importlib import import_module

import pytest

import conovel as cn
from conovel import errors
from conovel.models.wire import Surrogate

# Every public name with its parameters and defaults, and every public member of its class.
# A test compares it with the code; `python tests/test_public_api.py` prints the lines of today.
PUBLIC = r"""
AdaDetect(scorer=None, level=0.1, train_fraction=None, pi0=None, random_state=0,
    max_train_rows=100000, repeats=1, schema=None, confidence=None, ties='against',
    strata=None, weights=None)
AdaDetect.decision_function(X)
AdaDetect.detect(X_null, X_test, X_known=None, *, ids=None, on_stage=None, on_finding=None,
    ledger=None, verdicts=None, name=None, check=True)
AdaDetect.fit(X, y=None, *, X_unlabelled=None, X_known=None)
AdaDetect.fit_predict
AdaDetect.keep(X_null, X_unlabelled=None, X_known=None, *, explain=False, confidence=None,
    on_stage=None)
AdaDetect.kept_
AdaDetect.predict(X)
AdaDetect.read_fitted(X)
AdaDetect.score_samples(X)
AdaDetect.set_fit_request(*, X_known='$UNCHANGED$', X_unlabelled='$UNCHANGED$')
AdaDetect.settings()
Agent(name, X_null, X_test, scorer='as the network', bits='as the network', ids=None,
    seed=None, X_known=None)
Automatic(n_folds=4, random_state=None, shape=None)
Automatic.assumption
Automatic.candidates()
Automatic.fit(training)
Automatic.fit_known(training, likeness)
Automatic.label
Automatic.one_class(null_train)
Automatic.with_seed(seed)
BatchRefusedError(InputError) is raised
Blend(first, members, n_refits=(), n_folds=5, lead=1.0)
Blend.assumption
Blend.cross_fit(fitter)
Blend.fit(training)
Blend.fit_known(training, likeness)
Blend.label
Blend.with_seed(seed)
Check(p_value, columns, since, n_rows, n_latest, n_flagged, level, drift, p_columns,
    p_rehearsal, warnings=())
Check.exchangeable
Check.plot(ax=None)
Check.to_dict()
Column(name, kind, missing=False, fill=None, low=None, high=None, levels=(), rare=(),
    buckets=0, parts=())
Column.digest
Column.features
Column.has_feature_per_level
Column.neutral
Column.to_dict()
ColumnDrift(column, p_value, since, before, after)
ColumnError(InputError) is raised
ConovelError(Numbered, Exception) is raised
ConovelWarning(Numbered, UserWarning) is raised
DataWarning(ConovelWarning) is raised
Detection(*, name='', rejected, ranks, scores, tested, n_calibration, test_rows, ids=None,
    choices=<factory>, explainer=None, warnings=(), parts=<factory>, calibration_scores,
    stepup, n_train, scorer, guarantee)
Detection.adjusted
Detection.by_stratum()
Detection.cells
Detection.cells_as_plain()
Detection.certificate(result, confidence=0.95)
Detection.columns()
Detection.columns_used
Detection.conditional
Detection.confidence
Detection.explain(top=3)
Detection.floor
Detection.headline
Detection.histogram
Detection.ledger
Detection.level
Detection.most_novel_reasons(most=None)
Detection.n_known
Detection.n_rejected
Detection.normal_at
Detection.p_values
Detection.patterns(top=3)
Detection.plot(ax=None)
Detection.reasons
Detection.repeated
Detection.repeats
Detection.report(path)
Detection.resolution
Detection.roaming
Detection.selection
Detection.strata
Detection.strata_as_plain()
Detection.summary()
Detection.times_flagged
Detection.to_frame()
Detection.weighted
Drift(n_rows, p_value, columns, places, traces)
Drift.drifting(level=Fraction(1, 100))
Drift.trace(column)
Evaluation(trials, level, normal, by_order, by_known=<factory>)
Evaluation.fdp
Evaluation.headline
Evaluation.n_warned
Evaluation.plot(ax=None)
Evaluation.power
Evaluation.spread(what)
Evaluation.to_dict()
Evaluation.warnings
Evaluation.with_known(n_known)
Evidence(values, codes)
Evidence.to_list()
EvidenceRound(k, counts)
EvidenceRound.total
FileError(ConovelError, OSError) is raised
Finding(kind, message, fix, columns=(), agent='', numbers=<factory>, trace=())
Finding.breaks_promise
Finding.of_agent(name)
Finding.to_dict()
FittedScorer(scorer, read, scale, estimator=None, weights=None, selection=None, by_known=None)
FittedScorer.by_row
FittedScorer.choices
FittedScorer.flat
FittedScorer.name
FittedScorer.score(X)
FixedScore(model, name='', trained_on=None, higher='novel', method=None)
FixedScore.assumption
FixedScore.digests(rows)
FixedScore.fit(training)
FixedScore.fit_known(training, likeness)
FixedScore.has_seen(rows)
FixedScore.label
FixedScore.with_seed(seed)
Guarantee(statement, assumptions, paragraph='')
GuaranteeWarning(ConovelWarning) is raised
InputError(ConovelError, ValueError) is raised
KeptDetector(level, scorer, imitated, schema, columns, kinds, n_features, n_train,
    n_unlabelled, unlabelled, calibration_scores, model, normals, software, n_known=0,
    novelties=None, confidence=None, strata=None)
KeptDetector.conditional
KeptDetector.detect(X_test, *, ids=None, level=None, on_stage=None, ledger=None, name=None,
    check=True)
KeptDetector.digest
KeptDetector.explainer
KeptDetector.fitted
KeptDetector.from_bytes(data)
KeptDetector.in_the_long_run
KeptDetector.load(path)
KeptDetector.long_run
KeptDetector.margins(X)
KeptDetector.n_calibration
KeptDetector.read(X, name='X')
KeptDetector.save(path)
KeptDetector.score(X)
KeptDetector.to_bytes()
Ledger(level=0.1, final=False, n_batches=30)
Ledger.add(ranks, n_calibration, facts, ids=None, name=None, evidence=None)
Ledger.add_of_network(rejected, network, facts, ids=None, name=None)
Ledger.certificate(ledger, confidence=0.95)
Ledger.count(k)
Ledger.decisions()
Ledger.guarantee
Ledger.history
Ledger.in_network
Ledger.is_full
Ledger.listed()
Ledger.load(path)
Ledger.n_listed
Ledger.n_tests
Ledger.needs(n_tests, n_calibration=None)
Ledger.reaches(k, entry)
Ledger.require(facts)
Ledger.save(path)
Ledger.update_since(before)
LedgerUpdate(number, name, rejected, n_listed, n_tests, joined, left, needs, guarantee,
    is_full=False)
LedgerUpdate.summary()
LevelError(InputError) is raised
LocalProtocolError(ProtocolError) is raised
MissingExtraError(ConovelError, ImportError) is raised
Mixture(distinct, position)
Mixture.of(rows)
Mixture.rows
Mixture.score(model)
ModelError(InputError) is raised
Network(agents, *, regime='auto', composite='auto', bits='compact', level=0.1, scorer=None,
    random_state=0, train_fraction=None, pi0=None, on_dropout='abort', repeats=1, ledger=None,
    liars=0, counting='rounds', reveal_to='coordinator', schema=None, privacy=None,
    min_group_rows=1, masks=False, confidence=None, ties='against', strata=None)
Network.run(*, dropouts=None, on_stage=None, on_finding=None, check=True)
Network.spec()
NetworkRun(sites, transcript, guarantee, spec, n_null, lost=(), runs=(), evidence_rounds=(),
    batch=None, mean=None, confidence=None)
NetworkRun.certificate(run, confidence=0.95)
NetworkRun.groups
NetworkRun.headline
NetworkRun.n_bytes
NetworkRun.n_rejected
NetworkRun.plot(ax=None)
NetworkRun.report(path)
NetworkRun.rounds
NetworkRun.save(path)
NetworkRun.to_dict()
NetworkRun.to_frame()
NetworkRun.transcripts
NetworkRun.warnings
OneClass(model, higher, method='decision_function')
OneClass.assumption
OneClass.fit(training)
OneClass.fit_known(training, likeness)
OneClass.fit_nulls(null_train)
OneClass.label
OneClass.with_seed(seed)
PrivacyError(InputError) is raised
ProtocolError(ConovelError) is raised
Quantile(at=Fraction(1, 2))
Quantile.null_count(below, n_calibration, m)
Refined(first, second=None, n_folds=5, n_refits=3)
Refined.assumption
Refined.cross_fit(fitter)
Refined.fit(training)
Refined.fit_known(training, likeness)
Refined.label
Refined.learner
Refined.with_seed(seed)
RemoteProtocolError(ProtocolError) is raised
Repeated(level, seeds, n_rejected, n_tests, flags, run_level, n_calibration=None)
Repeated.at_least(k)
Repeated.e_values
Repeated.evidence
Repeated.repeats
Repeated.spelled_flags()
Repeated.times_flagged
Resolution(fewest, rows_for_any, rows_for_one)
ResolutionWarning(ConovelWarning) is raised
SampleError(InputError) is raised
SavedFileError(FileError) is raised
Schema(columns, made_from=None)
Schema.digests
Schema.features
Schema.from_dict(plain)
Schema.from_toml(text)
Schema.names
Schema.require_apart(name)
Schema.require_small()
Schema.source
Schema.to_dict()
Schema.to_toml()
Schema.used
Scorer()
Scorer.assumption
Scorer.fit(training)
Scorer.fit_known(training, likeness)
Scorer.label
Scorer.with_seed(seed)
ScorerError(InputError) is raised
Selection(names, values, chosen, criterion='enrichment', rule='')
Selection.to_dict()
Selection.winner
SiteResult(*, name='', rejected, ranks, scores, tested, n_calibration, test_rows, ids=None,
    choices=<factory>, explainer=None, warnings=(), parts=<factory>)
SiteResult.by_stratum()
SiteResult.cells
SiteResult.cells_as_plain()
SiteResult.certificate(result, confidence=0.95)
SiteResult.columns()
SiteResult.columns_used
SiteResult.explain(top=3)
SiteResult.floor
SiteResult.ledger
SiteResult.most_novel_reasons(most=None)
SiteResult.n_rejected
SiteResult.normal_at
SiteResult.p_values
SiteResult.patterns(top=3)
SiteResult.plot(ax=None)
SiteResult.reasons
SiteResult.repeated
SiteResult.repeats
SiteResult.report(path)
SiteResult.roaming
SiteResult.strata
SiteResult.strata_as_plain()
SiteResult.times_flagged
SiteResult.to_frame()
SiteVanishedError(RemoteProtocolError) is raised
StepUp(n_rejected, rejected, counts, limits, level, pi0)
StepUp.rounds
Storey(at=Fraction(1, 2))
Storey.null_count(below, n_calibration, m)
Surrogate = conovel.models.forest.Forest | conovel.models.linear.Linear |
    conovel.models.linear.Dense | conovel.models.quantized.forest.QuantizedForest |
    conovel.models.quantized.dense.QuantizedDense
TrainingSet(null_train, mixture, known_rows=None)
TrainingSet.labelled()
TrainingSet.n_known
Transcript(run_id='', spec=None, agents=<factory>, roster=(), n_tests=0, left=<factory>,
    weights=<factory>, rooms=<factory>, histograms=<factory>, shared=<factory>,
    commitments=<factory>, reveals=<factory>, all_ready=<factory>, group_wanted=<factory>,
    group_cells=<factory>, rounds=<factory>, outcome=None, abort=None, entries=<factory>)
Transcript.cell_counts
Transcript.charged(entry)
Transcript.from_dict(plain)
Transcript.n_rounds
Transcript.note(message, n_bytes, paper_bits=None)
Transcript.record(data, paper_bits=None)
Transcript.settings
Transcript.to_dict()
Transcript.totals()
Transcript.uncovered
ValueTypeError(ColumnError, TypeError) is raised
Verdicts(path, learn=None)
Verdicts.add(judged, *, batch=None, who=None)
Verdicts.batches
Verdicts.history
Verdicts.known_rows()
Verdicts.read()
Verdicts.record(entries, expected=None)
Verdicts.spent(X_null)
Verdicts.summary()
Verdicts.train_only_rows()
WireError(ConovelError, ValueError) is raised
adjusted_pvalues(ranks, n_calibration)
benjamini_hochberg(ranks, n_calibration, level, *, pi0=None)
check(X_null, order=None, *, level=0.1, scorer=None, random_state=0, schema=None)
clean_normals(X_null, verdicts)
conformal_pvalues(calibration_scores, test_scores)
conformal_ranks(calibration_scores, test_scores)
decode(message, *, schema=None)
e_bh(e_values, level, *, denominator=1)
encode(model, *, bits=None, schema=b'\x00\x00\x00\x00')
evaluate(X, label, *, order=None, trials=None, normal=None, test_share='0.3', known_share=None,
    X_known=None, keep=(), level=0.1, scorer=None, train_fraction=None, pi0=None,
    random_state=0, schema=None, on_stage=None, on_finding=None)
fast_lsu(blocks, level, *, pi0=None, liars=0)
infer_schema(X_null, X_test=None, *, kinds=None)
read(path, *, columns=None, exclude=(), header=True, separator=None, decimal=None,
    encoding=None, na=())
reject(calibration_scores, test_scores, level)
resolution(n_calibration, m, level)
suspicious_normals(X_null, budget=10, X_test=None, *, verdicts=None, schema=None,
    random_state=0)
"""

# What others were promised, beyond the names: parameters of calls and members of results.
CONTRACT = {
    "AdaDetect": "scorer level train_fraction pi0 random_state max_train_rows",
    "AdaDetect.detect": "X_null X_test ids on_stage",
    "Network": (
        "agents regime composite bits level scorer random_state train_fraction pi0 on_dropout"
    ),
    "benjamini_hochberg": "ranks n_calibration level",
    "adjusted_pvalues": "ranks n_calibration",
    "fast_lsu": "blocks level",
    "e_bh": "e_values level",
    "encode": "model bits",
}
MEMBERS = {
    "Detection": "rejected p_values ranks scores n_rejected to_frame guarantee",
    "NetworkRun": "n_rejected rounds transcript __getitem__",
    "SiteResult": "rejected ranks p_values scores tested n_calibration",
}


def printed_by(code):
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def is_error(thing):
    return inspect.isclass(thing) and issubclass(thing, Exception)


def parameters(function):
    """The signature without annotations and without self."""
    signature = inspect.signature(function)
    named = [p for p in signature.parameters.values() if p.name != "self"]
    plain = [p.replace(annotation=p.empty) for p in named]
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))


def own_members(thing):
    """Public methods, properties and texts that conovel gives to a class, but for fields."""
    fields = set(inspect.signature(thing).parameters)
    for name in dir(thing):
        if name.startswith("_") or name in fields:
            continue
        home = next(c for c in thing.__mro__ if name in vars(c))
        if home.__module__.split(".")[0] == "conovel":
            yield name, vars(home)[name]


def described(name, thing):
    """One line for a public name and one for each public member."""
    if is_error(thing):
        yield f"{name}({', '.join(base.__name__ for base in thing.__bases__)}) is raised"
        return
    if not callable(thing):
        yield f"{name} = {thing}"
        return
    yield name + parameters(thing)
    for member, value in own_members(thing) if inspect.isclass(thing) else ():
        if isinstance(value, property | cached_property | str):
            yield f"{name}.{member}"
        elif callable(getattr(thing, member)):
            yield f"{name}.{member}{parameters(getattr(thing, member))}"


def public_things():
    """Everything that is public by its name: in conovel itself, or in the module it moved to."""
    moved = {n: getattr(import_module(f"conovel.{home}"), n) for n, home in cn._MOVED.items()}
    return dict(sorted({**{name: getattr(cn, name) for name in cn.__all__}, **moved}.items()))


def todays_lines():
    lines = [line for name, thing in public_things().items() for line in described(name, thing)]
    return [part for line in lines for part in textwrap.wrap(line, 95, subsequent_indent="    ")]


def test_names_and_signatures_are_those_that_were_promised():
    difference = list(difflib.ndiff(PUBLIC.split("\n")[1:-1], todays_lines()))
    changed = "\n".join(line for line in difference if line[0] in "+-")
    assert not changed, (
        f"the public interface is another one:\n{changed}\n"
        "If that is meant, run `python tests/test_public_api.py`, put what it prints into PUBLIC,"
        " and say in CHANGELOG.md what callers have to change."
    )


@pytest.mark.parametrize(("call", "names"), CONTRACT.items())
def test_promised_parameters(call, names):
    function = cn
    for part in call.split("."):
        function = getattr(function, part)
    found = inspect.signature(function).parameters
    assert [name for name in names.split() if name not in found] == []


@pytest.mark.parametrize(("name", "members"), MEMBERS.items())
def test_promised_members(name, members):
    thing = getattr(cn, name)
    found = {*dir(thing), *inspect.signature(thing).parameters}
    assert [member for member in members.split() if member not in found] == []


def test_options_of_a_network_mean_what_they_mean_in_adadetect():
    ours, theirs = (inspect.signature(c).parameters for c in (cn.Network, cn.AdaDetect))
    shared = [name for name in ours if name in theirs]
    assert shared == [
        "level",
        "scorer",
        "random_state",
        "train_fraction",
        "pi0",
        "repeats",
        "schema",
        "confidence",
        "ties",
        "strata",
    ]
    for name in shared:
        assert ours[name].default == theirs[name].default
        assert ours[name].annotation == theirs[name].annotation
    assert all(p.kind is p.KEYWORD_ONLY for name, p in ours.items() if name != "agents")


def test_names_are_sorted_and_resolve_and_are_listed():
    assert cn.__all__ == sorted(cn.__all__)
    for name in cn.__all__:
        assert getattr(cn, name) is not None
        assert name in dir(cn)


def test_five_errors_and_warnings_catch_all_others():
    """One for all, for arguments, for files, for runs between agents, and for warnings."""
    caught = {name for name in cn.__all__ if is_error(getattr(cn, name))}
    assert caught == {
        "ConovelError",
        "ConovelWarning",
        "FileError",
        "InputError",
        "ProtocolError",
    }
    every = [thing for thing in vars(errors).values() if is_error(thing)]
    assert all(issubclass(thing, cn.ConovelError | cn.ConovelWarning) for thing in every)


def test_there_are_about_forty_names():
    assert len(cn.__all__) <= 45
    assert not {*cn.__all__} & {*cn._MOVED}


@pytest.mark.parametrize("name", cn._MOVED)
def test_old_places_work_with_a_warning(name):
    home = f"conovel.{cn._MOVED[name]}"
    with pytest.warns(DeprecationWarning, match=f"conovel.{name} has moved: .* from {home}"):
        thing = getattr(cn, name)
    assert thing is getattr(import_module(home), name)
    assert cn.errors is errors


@pytest.mark.parametrize(("name", "thing"), public_things().items())
def test_every_public_name_is_explained(name, thing):
    if name == "Surrogate":  # an alias of classes
        return
    text = inspect.getdoc(thing) or ""
    assert text.split("\n\n")[0].endswith(".")
    if not is_error(thing):
        assert "Examples\n---" in text or "See Also\n---" in text


def test_surrogate_is_what_decode_returns():
    stump = Surrogate.__args__[0]([0, -1, -1], [0.5, 0, 0], [1, 1, 2], [0, 0.1, 0.8], [0], 1)
    assert isinstance(cn.decode(cn.encode(stump)), Surrogate)


def test_scorers_do_not_pretend_to_be_estimators():
    for name in ("Automatic", "Blend", "OneClass", "Refined"):
        scorer = getattr(cn, name)
        assert issubclass(scorer, cn.Scorer)
        assert not hasattr(scorer, "get_params")


def test_statistics_need_neither_scikit_learn_nor_numba():
    code = (
        "import sys, conovel; conovel.reject([1, 2, 3] * 9, [9, 9], 0.1);"
        "print([m for m in ('sklearn', 'numba', 'pyarrow', 'pandas') if m in sys.modules])"
    )
    assert printed_by(code) == "[]"


def test_import_loads_nothing_else():
    code = (
        "import sys, conovel; conovel.__all__;"
        "print([m for m in ('sklearn', 'numba', 'pyarrow', 'numpy') if m in sys.modules])"
    )
    assert printed_by(code) == "[]"


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from conovel.cli import app;"
        "print([m for m in ('sklearn', 'numba', 'pyarrow', 'numpy') if m in sys.modules])"
    )
    assert printed_by(code) == "[]"


if __name__ == "__main__":
    print("\n".join(todays_lines()))
