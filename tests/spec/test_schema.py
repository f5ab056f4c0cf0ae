"""The record of a table: strict reading, one form on disk, digests that name a column."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import conovel as cn
from conovel.errors import ConovelError, InputError
from conovel.spec.run_spec import RunSpec
from conovel.spec.schema import DEFAULT_PARTS, KINDS, PARTS, SchemaDigest, differing_columns

MIXED = cn.Schema(
    (
        cn.Column("age [a]", "number", missing=True, fill=40, low=0, high=120),
        cn.Column("smoker", "boolean"),
        cn.Column("type, of it", "category", levels=["L", 'M "x"', "H\x7f"], rare=["Z"]),
        cn.Column("zip", "category", buckets=4, missing=True),
        cn.Column("when", "date", parts=["weekday", "hour"]),
        cn.Column("id\n(of the row)", "ignore"),
    )
)
TEXTS = st.text(max_size=6)
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 300), st.floats(), TEXTS, st.lists(TEXTS, max_size=3)
)


def test_features_and_the_columns_that_they_come_from():
    assert MIXED.features == (
        "age [a]",
        "age [a] is missing",
        "smoker",
        "type, of it=L",
        'type, of it=M "x"',
        "type, of it=H\x7f",
        "type, of it is rare",
        *(f"zip: bucket {i}" for i in range(4)),
        "zip is missing",
        "when: weekday",
        "when: hour",
    )
    assert len(MIXED.source) == len(MIXED.features)
    assert set(MIXED.source) == set(MIXED.names) - {"id\n(of the row)"}


def test_many_levels_are_one_feature():
    levels = [str(i) for i in range(9)]
    assert cn.Column("c", "category", levels=levels, rare=["z"]).features == ("c",)
    assert len(cn.Column("c", "category", levels=levels[:8], rare=["z"]).features) == 9
    assert cn.Column("c", "category", buckets=9, missing=True).features == ("c", "c is missing")


def test_round_trips():
    assert cn.Schema.from_dict(MIXED.to_dict()) == MIXED
    assert cn.Schema.from_toml(MIXED.to_toml()) == MIXED
    spec = RunSpec.of(schema=MIXED)
    assert RunSpec.from_dict(spec.to_dict()) == spec
    told = RunSpec.from_text(spec.to_text())
    assert told.schema == SchemaDigest(MIXED.digests)
    assert told.to_text() == spec.to_text()
    assert RunSpec.from_dict(told.to_dict()) == told
    assert not spec.differences(told)


def test_without_a_schema_the_spelling_is_as_before():
    assert "schema" not in RunSpec.of().to_text()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"smoker": None}, "the column 'smoker' is missing"),
        ({"smoker": "number"}, "the column 'smoker' is another"),
        ({"new": "number"}, "the column 'new' is unknown"),
    ],
)
def test_a_difference_names_the_column(change, said):
    plain = {k: v for k, v in (MIXED.to_dict() | change).items() if v is not None}
    other = RunSpec.of(schema=cn.Schema.from_dict(plain))
    assert RunSpec.of(schema=MIXED).differences(other) == [said]
    assert RunSpec.of().differences(other) == ["only one of the two has a schema of the columns"]


def test_the_order_of_columns_is_a_difference():
    turned = cn.Schema(MIXED.columns[::-1])
    assert differing_columns(MIXED.digests, turned.digests) == ["the columns have another order"]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"kind": "text"}, "kind must be one of number"),
        ({}, "say its kind"),
        (3, "say its kind"),
        ({"kind": "number", "levels": ["a"]}, "the kind number has no levels"),
        ({"kind": "ignore", "missing": True}, "the kind ignore has no missing"),
        ({"kind": "number", "fill": float("nan")}, "fill must be a finite number"),
        ({"kind": "number", "low": 2, "high": 1}, "low must be below"),
        ({"kind": "category"}, "levels must be given"),
        ({"kind": "category", "levels": ["a", "a"]}, "levels must be a list of different"),
        ({"kind": "category", "levels": ["a"], "rare": ["a"]}, "rare must be apart"),
        ({"kind": "category", "levels": ["a"], "buckets": 3}, "buckets must be alone"),
        ({"kind": "category", "buckets": 257}, "from 0 to 256"),
        ({"kind": "category", "buckets": True}, "buckets must be"),
        ({"kind": "date", "parts": ["epoch"]}, "parts must be some of year"),
        ({"kind": "number", "unit": "K"}, "says nothing about unit"),
        ({"kind": "number", "missing": 1}, "missing must be true or false"),
    ],
)
def test_what_cannot_be_said_of_a_column(said, message):
    with pytest.raises(InputError, match=message):
        cn.Schema.from_dict({"age": said})


@pytest.mark.parametrize(
    "text",
    ["", "x", "[columns]", "columns = 3", "[columns.a]\nkind='ignore'", "[a]\nkind='number'"],
)
def test_files_that_are_no_schema(text):
    with pytest.raises(InputError):
        cn.Schema.from_toml(text)


def test_a_date_has_parts_that_come_back_soon():
    assert cn.Column("when", "date").parts == DEFAULT_PARTS


def test_too_many_or_too_long_columns_are_refused():
    many = cn.Schema.from_dict({str(i): "number" for i in range(2001)})
    with pytest.raises(InputError, match="at most 2000"):
        RunSpec.of(schema=many)
    with pytest.raises(InputError, match="too long"):
        RunSpec.of(schema=cn.Schema.from_dict({f"{i:060}": "number" for i in range(1000)}))


@given(
    st.dictionaries(
        TEXTS,
        st.one_of(
            VALUES,
            st.dictionaries(
                st.sampled_from(["kind", "missing", "fill", "low", "levels", "buckets", "parts"]),
                st.one_of(VALUES, st.sampled_from([*KINDS, list(PARTS)])),
            ),
        ),
        max_size=3,
    )
)
def test_plain_values_from_anybody_are_read_or_refused(plain):
    try:
        schema = cn.Schema.from_dict(plain)
    except ConovelError:
        return
    assert cn.Schema.from_dict(schema.to_dict()) == schema
    assert cn.Schema.from_toml(schema.to_toml()) == schema
