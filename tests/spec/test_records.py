"""Records of JSON and TOML: every error names the field, what it must be, and what it is."""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Literal

import pytest
from msgspec import Meta

from conovel.errors import InputError
from conovel.spec.records import as_record, check_fields, read_json, read_toml


@dataclass(frozen=True)
class Part:
    n: Annotated[int, Meta(ge=1, le=9)]
    how: Literal["a", "b"] = "a"


@dataclass(frozen=True)
class Whole:
    name: str
    level: Fraction = Fraction(1, 10)
    names: tuple[str, ...] = ()
    part: Part | None = None
    parts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self):
        check_fields(self)
        if self.name == "":
            raise InputError("name must not be empty")


def test_a_record_is_made_of_plain_values():
    plain = {"name": "x", "level": 0.2, "names": ["a"], "part": {"n": 3, "how": "b"}}
    assert as_record(Whole, plain) == Whole("x", Fraction(1, 5), ("a",), Part(3, "b"))
    assert Whole("x", level="1/3").level == Fraction(1, 3)


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ([], "f.json: it must be a table, not []"),
        ({}, "f.json: it needs the key 'name'"),
        ({"name": "x", "nmaes": 1}, "f.json: there is no key 'nmaes'; choose from name, level,"),
        ({"name": 1}, "f.json: name must be a text, not 1"),
        ({"name": ""}, "f.json: name must not be empty"),
        ({"name": "x", "level": True}, "level must be a number such as 0.1 or '1/10', not True"),
        ({"name": "x", "level": "1e999999"}, "level must be a number such as"),
        ({"name": "x", "names": ["a", 1]}, "names must be a list, of each a text, not ['a', 1]"),
        ({"name": "x", "part": 3}, "f.json: part must be a table, not 3"),
        ({"name": "x", "part": {}}, "f.json: [part]: it needs the key 'n'"),
        ({"name": "x", "part": {"n": 0}}, "[part]: n must be a whole number from 1 to 9, not 0"),
        ({"name": "x", "part": {"n": 1, "how": "c"}}, "[part]: how must be 'a' or 'b', not 'c'"),
        ({"name": "x", "parts": {"a": 1.5}}, "f.json: parts must be a table"),
    ],
)
def test_an_error_names_the_field_and_what_it_must_be(plain, message):
    with pytest.raises(InputError) as error:
        as_record(Whole, plain, "f.json")
    assert message in str(error.value)


@pytest.mark.parametrize("text", ["[" * 10**5, '{"a":' * 10**5, "NaN", '"\\ud800"', b"\xff", ""])
def test_hostile_json_is_refused_with_a_named_error(text):
    with pytest.raises(InputError, match="json is not JSON"):
        read_json(text, "f.json")


def test_text_is_bounded_before_it_is_parsed():
    with pytest.raises(InputError, match="more than 10 bytes"):
        read_json("1" * 11, "f.json", most=10)
    for text, why in (("x = " + "[" * 10**5, "not TOML"), (f"x = {1 << 70}", "64 bits")):
        with pytest.raises(InputError, match=why):
            read_toml(text, "f.toml")
