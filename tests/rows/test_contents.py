"""Contents of samples: equal rows are recognised however they are written, and no others."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import conovel as cn
from conovel.errors import InputError
from conovel.spec.made_from import Contents, MadeFrom, require_made_for, together

N = 50
RNG = np.random.default_rng(0)
ROWS = pd.DataFrame(
    {
        "x": RNG.normal(size=N).astype("float32"),
        "code": RNG.integers(0, 9, N),
        "on": RNG.random(N) < 0.5,
        "when": pd.Timestamp("2026-01-01") + pd.to_timedelta(RNG.integers(0, 10**6, N), "s"),
        "city": RNG.choice(["Ulm", "Bonn"], N),
    }
).mask(pd.DataFrame(RNG.random((N, 5)) < 0.1, columns=["x", "code", "on", "when", "city"]))
KINDS = {"when": "date", "on": "boolean", "code": "number", "city": "category"}


def as_texts(frame):
    return frame.map(lambda v: "?" if pd.isna(v) else f" {v}").assign(
        code=frame["code"].map(lambda v: "NA" if pd.isna(v) else f"{int(v):03d}")
    )


FORMS = {
    "another order": lambda f: f.sample(frac=1, random_state=1)[
        ["city", "when", "on", "code", "x"]
    ],
    "double precision": lambda f: f.assign(x=f["x"].astype(float)),
    "polars": lambda f: pl.from_pandas(f.astype({"on": "boolean"})),
    "arrow": lambda f: pa.Table.from_pandas(f.astype({"on": "boolean"}), preserve_index=False),
    "texts": as_texts,
    "categories": lambda f: f.assign(city=f["city"].astype("category")),
}


def made_from(*samples, **more):
    return cn.infer_schema(*samples, kinds=KINDS | more).made_from


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_recognised_in_every_form(form):
    schema = cn.infer_schema(ROWS, kinds=KINDS)
    with pytest.raises(InputError, match="from the known normals and not from the test rows"):
        cn.AdaDetect("logistic", schema=schema).detect(*map(FORMS[form], (ROWS, ROWS[:20])))


@pytest.mark.parametrize("kind", ["category", "ignore"])
def test_an_edited_schema_is_recognised(kind):
    plain = cn.infer_schema(ROWS, kinds=KINDS).to_toml()
    edited = plain.replace(
        '[columns."code"]\nkind = "number"\n', f'[columns."code"]\nkind = "{kind}"\n'
    )
    lines = [line for line in edited.splitlines() if not line.startswith("fill")]
    text = "\n".join(lines)
    if kind == "category":
        text = text.replace(
            f'kind = "{kind}"\nmissing', f'kind = "{kind}"\nbuckets = 4\nmissing', 1
        )
    else:
        text = text.replace(f'kind = "{kind}"\nmissing = true', f'kind = "{kind}"')
    schema = cn.Schema.from_toml(text)
    assert schema["code"].kind == kind
    with pytest.raises(InputError, match="not controlled"):
        cn.AdaDetect("logistic", schema=schema).detect(ROWS, ROWS[:20])


def test_other_rows_are_others():
    one = made_from(ROWS)
    for other in (ROWS[:-1], pd.concat([ROWS, ROWS[:1]]), ROWS.assign(x=ROWS["x"] + 1)):
        assert made_from(other).samples != one.samples
    assert made_from(ROWS[:20], ROWS[20:]).whole == one.whole


def test_arrays_are_recognised():
    rows = RNG.normal(size=(40, 2))
    rows[3, 1] = np.nan
    schema = cn.infer_schema(rows)
    with pytest.raises(InputError, match="not controlled"):
        cn.AdaDetect("logistic", schema=schema).detect(rows[::-1], rows[:10])


def test_dates_and_their_texts_are_alike():
    days = [datetime.date(2026, 1, 1 + i % 20) for i in range(N)]
    frames = [
        pd.DataFrame({"d": column, "x": range(N)}) for column in (days, list(map(str, days)))
    ]
    one, other = (cn.infer_schema(frame, kinds={"d": "date"}).made_from for frame in frames)
    assert one == other


def test_what_it_was_made_from_is_in_the_file():
    both = cn.infer_schema(ROWS[:30], ROWS[30:], kinds=KINDS)
    again = cn.Schema.from_toml(both.to_toml())
    assert (again, again.made_from) == (both, both.made_from)
    assert (again.made_from.how, [s.rows for s in again.made_from.samples]) == (
        "both samples",
        [30, 20],
    )
    assert cn.infer_schema(ROWS, kinds=KINDS).made_from.how == "one table"
    written = cn.Schema(both.columns)
    assert cn.Schema.from_toml(written.to_toml()).made_from is None
    assert written == both  # what agents agree on is what it says of the columns
    assert written.digests == both.digests


PLAIN = MadeFrom(("a",), (Contents(3, 7),)).to_dict()


@pytest.mark.parametrize(
    "change",
    [
        {"how": "both samples"},
        {"rows": [3, 4]},
        {"rows": [True]},
        {"rows": [-1]},
        {"rows": [2**60]},
        {"rows": 3},
        {"digests": ["7"]},
        {"digests": [7]},
        {"digests": ["G" * 16]},
        {"columns": "a"},
        {"columns": [1]},
        {"more": 1},
        {"rows": [], "digests": []},
        {"rows": [1, 1, 1], "digests": ["0" * 16] * 3},
    ],
)
def test_what_is_no_record_is_refused(change):
    with pytest.raises(InputError, match="made_from"):
        MadeFrom.from_dict(PLAIN | change)
    assert MadeFrom.from_dict(PLAIN).samples == (Contents(3, 7),)


@pytest.mark.parametrize("plain", [None, [], "x", {}])
def test_what_is_no_table_is_refused(plain):
    with pytest.raises(InputError, match="made_from"):
        MadeFrom.from_dict(plain)


def test_a_schema_takes_no_other_record():
    with pytest.raises(InputError, match="made_from must be"):
        cn.Schema((cn.Column("a", "number"),), "somewhere")


A, B, C = Contents(3, 5), Contents(2, 9), Contents(7, 1)


@pytest.mark.parametrize(
    ("samples", "null", "test", "valid", "valid_if_fixed"),
    [
        ((A,), A, B, False, False),
        ((A,), B, A, False, False),
        ((A,), B, C, True, True),
        ((A, B), A, B, True, False),
        ((A + B,), A, B, True, False),
        ((A, B), A, C, False, False),
        ((A, B), C, B, False, False),
        ((A, B), A + B, C, False, False),
        ((A,), A, None, False, False),
        ((A,), None, None, True, True),
    ],
)
def test_one_role_without_the_other_is_refused(samples, null, test, valid, valid_if_fixed):
    made = MadeFrom(("a",), samples)
    for fixed, taken in ((False, valid), (True, valid_if_fixed)):
        if taken:
            require_made_for(made, null, test, fixed=fixed)
        else:
            with pytest.raises(InputError, match="Make the schema"):
                require_made_for(made, null, test, fixed=fixed)
    require_made_for(None, null, test, fixed=True)


def test_contents_of_several_samples():
    assert together([A, B]) == Contents(5, 14)
    assert together([A, None]) is None
    assert Contents(1, 2**64 - 1) + Contents(1, 2) == Contents(2, 1)
