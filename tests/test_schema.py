"""The JSON Schema validator: the official suite, what its sentences say, and hostile input.

data/jsonschema/ holds files of the official JSON-Schema-Test-Suite, draft 2020-12, unchanged and
under their own LICENSE. Of these, every group runs whose schema has none of OUTSIDE as a key at
any depth and no `$ref` but "#" and "#/…".
"""
from __future__ import annotations

import copy
import json
import random
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tam
import tam_tick
from support import ending

SUITE = Path(__file__).parent / "data" / "jsonschema"
OUTSIDE = {
    "$id", "$anchor", "$dynamicRef", "$dynamicAnchor",
    "dependentSchemas", "unevaluatedItems", "unevaluatedProperties",
}


def check_schema(schema: object, **options: int) -> None:
    """Raise the SchemaError for what is wrong in a schema, or else for what is not supported."""
    for _, beyond in tam_tick.StrangersCheck(schema, **options).unchecked():
        if beyond is not None:
            raise beyond


def unchecked_words(schema: object) -> list[str]:
    return sorted({word for word, _ in tam_tick.StrangersCheck(schema).unchecked()})


def brief(value: object) -> str:
    """A test's name may not carry megabytes, nor an integer that str() refuses."""
    return ascii(value)[:40] if isinstance(value, str) else type(value).__name__


def fits(schema: object, value: object) -> bool:
    check_schema(schema)
    return tam_tick.violations(schema, value) == []


def pairs(node: object) -> Iterator[tuple[str, object]]:
    """Every key with what it holds, at any depth."""
    if isinstance(node, dict):
        for key, held in node.items():
            yield key, held
            yield from pairs(held)
    elif isinstance(node, list):
        for item in node:
            yield from pairs(item)


def selected(schema: object) -> bool:
    for key, held in pairs(schema):
        if key in OUTSIDE:
            return False
        if key == "$ref" and isinstance(held, str) and held != "#" and not held.startswith("#/"):
            return False
    return True


# ---- the official suite


def test_official_suite() -> None:
    ran, wrong = 0, []
    for path in sorted(SUITE.glob("*.json")):
        for group in json.loads(path.read_text(encoding="utf-8")):
            if not selected(group["schema"]):
                continue
            for case in group["tests"]:
                ran += 1
                if fits(group["schema"], case["data"]) != case["valid"]:
                    wrong.append((path.name, group["description"], case["description"]))
    assert wrong == []
    assert ran == 786


def test_no_group_of_the_suite_crashes() -> None:
    for path in sorted(SUITE.glob("*.json")):
        for group in json.loads(path.read_text(encoding="utf-8")):
            try:
                check_schema(group["schema"])
            except tam.SchemaError as error:
                assert not selected(group["schema"])
                assert "$ref" in error.message and error.details["pointer"].endswith("/$ref")


def test_what_a_group_of_the_suite_uses_beyond_the_subset_is_named() -> None:
    for path in sorted(SUITE.glob("*.json")):
        for group in json.loads(path.read_text(encoding="utf-8")):
            try:
                words = set(unchecked_words(group["schema"]))
            except tam.SchemaError:
                assert not selected(group["schema"])
                continue
            assert words <= OUTSIDE | {"$ref"}
            if selected(group["schema"]):
                assert words == set()
    assert unchecked_words({"not": {"unevaluatedItems": False}}) == ["unevaluatedItems"]


# ---- equality and numbers


@pytest.mark.parametrize(("one", "other", "equal"), [
    (1, 1.0, True), (1, True, False), (0, False, False), (0, -0.0, True), (0, None, False),
    (1.5, 1.5, True), (10**20, 1e20, True), (10**20 + 1, 1e20, False), ("1", 1, False),
    (2**53 + 1, float(2**53), False), (10**400, 10**400, True), (10**400, 10**400 + 1, False),
    ([1], [1.0], True), ([1], [True], False), ([[0]], [[False]], False), ([1, 2], [2, 1], False),
    ({"a": 1, "b": [0]}, {"b": [0.0], "a": 1.0}, True), ({"a": 1}, {"a": True}, False),
    ({"a": 1}, {"a": 1, "b": 1}, False), ({}, [], False), ("", None, False),
    ("é", "e\u0301", False), ([], "", False), (0.5, [0.5], False), ({"a": 0}, {"b": 0}, False),
], ids=brief)
def test_equality(one: object, other: object, equal: bool) -> None:
    for left, right in ((one, other), (other, one)):
        assert fits({"const": left}, right) == equal
        assert fits({"enum": ["x", left]}, right) == equal
        assert fits({"uniqueItems": True}, [left, "y", right]) == (not equal)


@pytest.mark.parametrize(("value", "names"), [
    (None, "null"), (True, "boolean"), (0, "integer number"), (1.0, "integer number"),
    (1e300, "integer number"), (10**400, "integer number"), (1.5, "number"), ("1", "string"),
    ([], "array"), ({}, "object"),
], ids=brief)
def test_types(value: object, names: str) -> None:
    every = ["null", "boolean", "integer", "number", "string", "array", "object"]
    for name in every:
        assert fits({"type": name}, value) == (name in names.split())
        several = [name, "array" if name == "null" else "null"]
        assert fits({"type": several}, value) == any(each in names.split() for each in several)


@pytest.mark.parametrize(("step", "value", "fitting"), [
    (0.1, 0.3, True), (0.1, 1.1, True), (0.01, 19.99, True), (0.01, 19.999, False),
    (0.1, 10**400, True), (1e-300, 10**400, True), (1e300, 10**400, True), (3, 10**400, False),
    (1e-308, 1e308, True), (1.7e308, 5e-324, False), (5e-324, 1.7e308, True), (7, -14.0, True),
    (10**400, 10**400 * 3, True), (2.0, 3, False), (1, 1e22, True),
], ids=brief)
def test_multiples_are_decimal(step: int | float, value: int | float, fitting: bool) -> None:
    assert fits({"multipleOf": step}, value) == fitting


@pytest.mark.parametrize(("schema", "good", "bad"), [
    ({"minimum": 2}, [2, 2.0, 10**400, "1", None, True], [1, 1.9999, -10**400]),
    ({"exclusiveMinimum": 2}, [3, 2.0001], [2, 2.0]),
    ({"maximum": 1e308}, [10**308 - 1, -10**400], [10**400]),
    ({"exclusiveMaximum": 2}, [1.5], [2, 2.0, 3]),
    ({"minLength": 2, "maxLength": 2}, ["ab", "😀😀", "e\u0301", 7], ["a", "😀", "abc"]),
    ({"maxItems": 1.0}, [[], [1], {}], [[1, 2]]),
    ({"contains": {"const": 1}, "minContains": 2, "maxContains": 3}, [[1, 1], [1, 1.0, 0, 1]],
     [[], [1], [1, True], [1, 1, 1, 1]]),
    ({"contains": {"const": 1}, "minContains": 0}, [[], [2]], []),
    ({"minContains": 2}, [[], [1]], []),
    ({"prefixItems": [{"const": 1}], "items": {"const": 2}}, [[], [1], [1, 2, 2]], [[2], [1, 1]]),
    ({"if": {"const": 1}, "then": False}, [2], [1]),
    ({"then": False, "else": False}, [1], []),
    ({"dependentRequired": {"a": ["b", "c"]}}, [{}, {"b": 1}, {"a": 1, "b": 1, "c": 1}],
     [{"a": 1}, {"a": 1, "b": 1}]),
    ({"enum": []}, [], [1, "a", None]),
], ids=brief)
def test_keywords(schema: dict, good: list, bad: list) -> None:
    assert [value for value in good if not fits(schema, value)] == []
    assert [value for value in bad if fits(schema, value)] == []


# ---- references


@pytest.mark.parametrize("ref", [
    "#/$defs/a~1b", "#/$defs/a%7E1b", "#/$defs/a~01b", "#/$defs/%C3%A9", "#/$defs/é",
    "#/$defs//items", "#/prefixItems/1", "#/x-more/0/it",
])
def test_references_within_the_document(ref: str) -> None:
    number = {"type": "number"}
    schema = {
        "$defs": {"a/b": number, "a~1b": number, "é": number, "": {"items": number}},
        "prefixItems": [True, number],
        "x-more": [{"it": number}],
        "properties": {"it": {"$ref": ref}},
    }
    assert fits(schema, {"it": 1})
    assert [pointer for pointer, _ in tam_tick.violations(schema, {"it": "1"})] == ["/it"]


@pytest.mark.parametrize("ref", [
    "", "a", "#a", "#/", "#/$defs/b", "#/$defs/a/type", "#/prefixItems/2",
    "#/prefixItems/-1", "#/prefixItems/00", "#/prefixItems/" + "9" * 5000, "#/%ff",
    "#/$defs/\ud800",
    "https://json-schema.org/draft/2020-12/schema", "file.json#/$defs/a", "#/$defs/a/",
], ids=brief)
def test_references_that_lead_nowhere(ref: str) -> None:
    schema = {"$defs": {"a": {"type": "null"}}, "prefixItems": [True, {}],
              "properties": {"p": {"items": {"$ref": ref}}}}
    with pytest.raises(tam.SchemaError) as caught:
        check_schema(schema)
    assert caught.value.details["pointer"] == "/properties/p/items/$ref"
    with pytest.raises(tam.SchemaError):
        tam_tick.violations(schema, {"p": [1]})


def test_a_recursive_schema_follows_the_value() -> None:
    ends_or_goes_on = {"anyOf": [{"type": "null"}, {"$ref": "#"}]}
    schema = {"type": "object", "properties": {"next": ends_or_goes_on}, "required": ["next"]}
    value: object = None
    for _ in range(60):
        value = {"next": value}
    assert fits(schema, value)
    value = {}
    for _ in range(50):
        value = {"next": value}
    assert len(tam_tick.violations(schema, value)) == 1


@pytest.mark.parametrize("schema", [
    {"$ref": "#"},
    {"not": {"$ref": "#"}},
    {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}},
    {"properties": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/properties/a"}]}}},
    {"$defs": {"a": {"if": True, "then": {"oneOf": [True, {"$ref": "#/$defs/a"}]}}}},
    {"allOf": [{"$ref": "#/allOf/0"}]},
])
def test_circles_are_refused(schema: dict) -> None:
    with pytest.raises(tam.SchemaError, match="without end"):
        check_schema(schema)


# ---- what the sentences say


def schema_of_a_task() -> dict:
    return {
        "type": "object",
        "properties": {
            "title": {"type": "string", "minLength": 1, "maxLength": 5},
            "priority": {"type": "integer", "minimum": 0, "maximum": 4},
            "status": {"enum": ["todo", "done"]},
            "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            "id": {"pattern": "^[a-z]+$"},
            "when": {"anyOf": [{"type": "integer"}, {"properties": {"day": {"type": "string"}}}]},
        },
        "required": ["title"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(("value", "found"), [
    ({"title": "t"}, []),
    ([], [("", "must be an object; found []")]),
    ({}, [("", 'must have the property "title"; found {}')]),
    ({"title": ""}, [("/title", 'must have at least 1 character, not 0; found ""')]),
    ({"title": "t" * 70}, [("/title", "must have at most 5 characters, not 70; found \""
                            + "t" * 60 + '…" (70 characters)')]),
    ({"title": "t", "priority": True}, [("/priority", "must be an integer; found true")]),
    ({"title": "t", "priority": "5"}, [("/priority", 'must be an integer; found "5"')]),
    ({"title": "t", "priority": 1.5}, [("/priority", "must be an integer; found 1.5")]),
    ({"title": "t", "priority": 9}, [("/priority", "must be at most 4; found 9")]),
    ({"title": "t", "status": "new"}, [("/status", 'must be one of "todo", "done"; found "new"')]),
    ({"title": "t", "tags": ["a", 1, "a"]}, [
        ("/tags/1", "must be a string; found 1"),
        ("/tags/2", 'must differ from the other items, as from item 0; found "a"')]),
    ({"title": "t", "id": "A"}, [("/id", 'must match the pattern "^[a-z]+$"; found "A"')]),
    ({"title": "t", "when": {"day": 1}}, [
        ("/when", "must fit one of 2 forms, but fits none: (1) must be an integer, "
                  '(2) /day must be a string (found 1); found {"day": 1}')]),
    ({"title": "t", "titel": 1}, [
        ("/titel", 'must be left out: the names allowed here are "title", "priority", "status", '
                   '"tags", "id", "when"; found 1')]),
], ids=brief)
def test_sentences(value: object, found: list) -> None:
    assert tam_tick.violations(schema_of_a_task(), value) == found


@pytest.mark.parametrize(("schema", "value", "sentence"), [
    (False, 1, "must be left out; found 1"),
    ({"type": ["string", "null"]}, 1, "must be a string or null; found 1"),
    ({"const": {"a": [1, {"b": 2}]}}, None, 'must be {"a": [1, …]}; found null'),
    ({"const": "x"}, [[[1]], 2, 3, 4, 5, 6, 7],
     'must be "x"; found [[…], 2, 3, 4, 5, … 7 in all]'),
    ({"multipleOf": 0.5}, 0.7, "must be a multiple of 0.5; found 0.7"),
    ({"maximum": 1}, 10**5000, "must be at most 1; found an integer of about 5,001 digits"),
    ({"minLength": 10**5000}, "a",
     'must have at least an integer of about 5,001 digits characters, not 1; found "a"'),
    ({"maxProperties": 1}, {"a": 1, "b": []},
     'must have at most 1 property, not 2; found {"a": 1, "b": []}'),
    ({"minItems": 2}, [1], "must have at least 2 items, not 1; found [1]"),
    ({"contains": {"const": 1}}, [2],
     'must have at least 1 item that "contains" describes, not 0; found [2]'),
    ({"contains": {"const": 1}, "maxContains": 1}, [1, 1],
     'must have at most 1 item that "contains" describes, not 2; found [1, 1]'),
    ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, 3,
     "must fit exactly one of 2 forms, but fits several: 1, 2; found 3"),
    ({"oneOf": [{"type": "null"}, {"maximum": 2}]}, 3,
     "must fit exactly one of 2 forms, but fits none: (1) must be null, (2) must be at most 2; "
     "found 3"),
    ({"not": {"type": "integer"}}, 3, 'must be other than what "not" describes; found 3'),
    ({"dependentRequired": {"a": ["b"]}}, {"a": 1},
     'must have the property "b" because it has "a"; found {"a": 1}'),
], ids=brief)
def test_sentences_of_other_keywords(schema: object, value: object, sentence: str) -> None:
    check_schema(schema)
    assert tam_tick.violations(schema, value) == [("", sentence)]


def test_a_name_that_does_not_fit() -> None:
    schema = {"propertyNames": {"maxLength": 3}}
    assert tam_tick.violations(schema, {"abcd": 1, "ab": 1}) == [
        ("/abcd", "must have another name: the name must have at most 3 characters, not 4; "
                  'found "abcd"')]


def test_every_violation_is_reported_with_its_pointer() -> None:
    schema = {"items": {"properties": {"a/b": {"type": "null"}, "~": {"minimum": 5}},
                        "required": ["c"]}}
    value = [{"a/b": 1, "~": 4}, {"c": 0}, {"c": 0, "~": 0}, 7]
    pointers = [pointer for pointer, _ in tam_tick.violations(schema, value)]
    assert sorted(pointers) == ["/0", "/0/a~1b", "/0/~0", "/2/~0"]
    assert len(tam_tick.violations({"items": False}, [0] * 5000)) == 5000


def test_sentences_can_be_sent_on_whatever_was_found() -> None:
    schema = {"additionalProperties": False, "required": ["\udc00"]}
    for pointer, sentence in tam_tick.violations(schema, {"\ud800": "\ud83d", "\n\x1b": "\x1b[0m"}):
        (pointer + sentence).encode("utf-8")
        assert "\x1b" not in sentence and "\n" not in sentence


def test_sentences_stay_short() -> None:
    long, wide = "x" * 100_000, list(range(100_000))
    schema = {
        "enum": [long] * 50, "const": {long: [wide] * 9}, "pattern": "(?:yy)" * 500,
        "anyOf": [{"const": long}, {"enum": [long]}, {"properties": {long: False}}] * 20,
        "properties": {name * 50: {} for name in "abcdefghijklmnopqrstuvwxyz"},
        "propertyNames": {"enum": [long + "y"]},
        "required": [long + "z"],
        "additionalProperties": False,
    }
    for value in (long + "x", wide, {long: {long: wide}}, [[wide]]):
        found = tam_tick.violations(schema, value)
        assert found and max(len(sentence) for _, sentence in found) < 3_000


# ---- patterns


@pytest.mark.parametrize(("pattern", "good", "bad"), [
    ("a+", ["xxaayy"], ["", "b"]),
    ("^a*$", ["", "aaa"], ["a\n", "\na", "ab"]),
    ("a$", ["a", "ba"], ["a\n", "a\r"]),
    (r"^\d$", ["0", "9"], ["٣", "१", "a", ""]),
    (r"^\D$", ["٣", "a", "\n"], ["0"]),
    (r"^\w+$", ["aZ_0"], ["é", "a-b"]),
    (r"^\W$", ["é", "-"], ["a", "_"]),
    (r"^\s$", [" ", "\t", "\u00a0", "\ufeff", "\u2028", "\u3000"], ["\x1c", "\x85", "\u200b"]),
    (r"^\S$", ["\x1c", "\x85", "a"], [" ", "\ufeff"]),
    (r"^.$", ["a", "😀", "\x85"], ["\n", "\r", "\u2028", "\u2029", ""]),
    (r"^[^]$", ["\n", "😀"], ["", "ab"]),
    ("[]", [], ["", "a", "]"]),
    (r"^\p{Letter}+$", ["Hello", "π"], ["123", "a1"]),
    (r"^\p{Lu}\p{gc=Ll}[\p{Nd}_]\P{L}$", ["Aé٣-", "Ab_1"], ["ab1-", "Ab²-", "Ab1x"]),
    (r"^\p{LC}\p{General_Category=Punctuation}$", ["a!", "Z-"], ["ª!", "aa"]),
    (r"^\u0061\x62\cJ\u{1F600}\0\t$", ["ab\n😀\0\t"], ["ab"]),
    (r"^[\ud83d\ude00-\u{1F602}]$", ["😀", "😁"], ["\ud83d", "a"]),
    (r"^[\b\-\]\\]+$", ["\b-]\\"], ["b"]),
    (r"^[\w-.]+$", ["a-.b"], ["a/"]),
    (r"^[-a][a-]$", ["--", "aa"], ["ba"]),
    (r"^[^a-c\d]+$", ["xyz"], ["xa", "x1"]),
    (r"\bcat\b", ["a cat!", "cat"], ["cats", "écat_"]),
    (r"a\B", ["ab"], ["a", "a b", "aé"]),
    (r"^(?:ab|a)(?<rest>c|)$", ["ab", "a", "abc", "ac"], ["b", "abcc"]),
    (r"^(?=.*\d)(?!.*\s).{3,5}$", ["a1b", "abcd1"], ["abc", "a1 b", "a1", "abcde1"]),
    (r"^(?!-)[a-z-]+$", ["a-b"], ["-a"]),
    (r"^a{2}b{1,}c{0,2}?d{0}$", ["aab", "aabbcc"], ["ab", "aabccc", "aabd"]),
    (r"^(a|b)*?c$", ["c", "abac"], ["abab"]),
    (r"^(a*)*$", ["", "aaa"], ["b"]),
    (r"^(?:a?){3}$", ["", "aaa"], ["aaaa"]),
    (r"^{.*}$", ["{}", "{a}"], ["a"]),
    (r"^a{,2}$", ["a{,2}"], ["aa"]),
    (r"", ["", "a"], []),
    (r"a||b", ["", "x"], []),
    (r"^\/\.\{\_$", ["/.{_"], ["a"]),
], ids=brief)
def test_patterns(pattern: str, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not fits({"pattern": pattern}, text)] == []
    assert [text for text in bad if fits({"pattern": pattern}, text)] == []
    names = {"patternProperties": {pattern: {"type": "null"}}, "additionalProperties": False}
    assert fits(names, dict.fromkeys(good))
    assert len(tam_tick.violations(names, dict.fromkeys(bad))) == len(bad)


@pytest.mark.parametrize("pattern", [
    "(", ")", "a)", "[", "[a", "[^", "a**", "*", "+a", "a|*", "{2}", "a{2}{3}", "a{3,2}", "\\",
    "(?", "(?P<n>a)", "(?i)a", "(?<=a*)b", "(?<!a+)b", "(?>a)", r"(a)\1", r"(?<n>a)\k<n>", r"\Z",
    r"\A", r"\a", r"\e", r"\x1", r"\u12", r"\u{110000}", r"\u{}", r"\c1", r"\01", r"\p{Greek}",
    r"\p{Script=Greek}", r"\pL", r"\p", "[z-a]", r"[\q]", "a*+", "a++", "a?+", "a*??", "a{2}+",
    "a{9" + "9" * 6000 + "}", "(" * 2000, "(" * 2000 + ")" * 2000, "a" * 10_001,
], ids=brief)
def test_patterns_that_are_refused(pattern: str) -> None:
    for schema in ({"pattern": pattern}, {"patternProperties": {pattern: True}}):
        with pytest.raises(tam.SchemaError) as caught:
            check_schema({"items": schema})
        assert caught.value.details["pointer"] == "/items/" + next(iter(schema))
    with pytest.raises(tam.SchemaError):
        tam_tick.violations({"pattern": pattern}, "a")


def random_pattern(dice: random.Random, depth: int) -> str:
    """A pattern that means the same to Python's re for the text that is tried."""
    parts = []
    for _ in range(dice.randint(0, 3)):
        kinds = ["a", "b", ".", "[ab]", "[^a]", r"\d", r"\b", "^", "$(?!\n)"]
        part = dice.choice(kinds)
        if depth and dice.random() < 0.4:
            opening = dice.choice(["(", "(?:", "(?=", "(?!"])
            part = f"{opening}{random_pattern(dice, depth - 1)})"
        if part[:3] not in ("(?=", "(?!") and part[0] not in r"\^$" and dice.random() < 0.4:
            part += dice.choice(["*", "+", "?", "{2}", "{1,2}", "{2,}", "*?"])
        parts.append(part)
    other = "|" + random_pattern(dice, depth - 1) if depth and dice.random() < 0.3 else ""
    return "".join(parts) + other


def test_patterns_agree_with_re_where_both_mean_the_same() -> None:
    dice = random.Random(7)
    for _ in range(3_000):
        pattern = random_pattern(dice, 2)
        text = "".join(dice.choice("ab1-") for _ in range(dice.randint(0, 6)))
        said = re.search(tam_tick.translated(pattern), text, re.ASCII)
        assert bool(said) == bool(re.search(pattern, text)), (pattern, text)


# ---- the check of a schema


WRONG_SHAPES = [
    ({"type": "text"}, "/type"), ({"type": []}, "/type"), ({"type": ["null", "null"]}, "/type"),
    ({"type": ["null", 1]}, "/type"), ({"type": None}, "/type"), ({"enum": "a"}, "/enum"),
    ({"properties": []}, "/properties"), ({"properties": {"a": 1}}, "/properties/a"),
    ({"patternProperties": {"a": None}}, "/patternProperties/a"), ({"$defs": 1}, "/$defs"),
    ({"$defs": {"a": []}}, "/$defs/a"), ({"definitions": {"a": "b"}}, "/definitions/a"),
    ({"required": "a"}, "/required"), ({"required": ["a", "a"]}, "/required/1"),
    ({"required": [1]}, "/required/0"), ({"dependentRequired": {"a": "b"}}, "/dependentRequired/a"),
    ({"dependentRequired": []}, "/dependentRequired"), ({"items": [{}]}, "/items"),
    ({"items": None}, "/items"), ({"prefixItems": {}}, "/prefixItems"),
    ({"prefixItems": []}, "/prefixItems"), ({"prefixItems": [1]}, "/prefixItems/0"),
    ({"allOf": []}, "/allOf"), ({"anyOf": {}}, "/anyOf"), ({"oneOf": [{}, 0]}, "/oneOf/1"),
    ({"not": []}, "/not"), ({"if": 1}, "/if"), ({"then": ""}, "/then"), ({"else": None}, "/else"),
    ({"contains": 1}, "/contains"), ({"additionalProperties": "no"}, "/additionalProperties"),
    ({"propertyNames": 0}, "/propertyNames"), ({"uniqueItems": 1}, "/uniqueItems"),
    ({"minimum": "1"}, "/minimum"), ({"maximum": True}, "/maximum"),
    ({"exclusiveMinimum": False}, "/exclusiveMinimum"),
    ({"exclusiveMaximum": None}, "/exclusiveMaximum"),
    ({"minimum": float("nan")}, "/minimum"), ({"maximum": float("inf")}, "/maximum"),
    ({"dependentRequired": {"a": ["b", "b"]}}, "/dependentRequired/a/1"),
    ({"multipleOf": 0}, "/multipleOf"), ({"multipleOf": -1}, "/multipleOf"),
    ({"multipleOf": float("inf")}, "/multipleOf"), ({"minLength": -1}, "/minLength"),
    ({"maxLength": 1.5}, "/maxLength"), ({"minItems": "1"}, "/minItems"),
    ({"maxItems": True}, "/maxItems"), ({"minProperties": None}, "/minProperties"),
    ({"maxProperties": []}, "/maxProperties"), ({"minContains": -1}, "/minContains"),
    ({"maxContains": 0.5}, "/maxContains"), ({"pattern": 1}, "/pattern"), ({"$ref": 1}, "/$ref"),
    ({"title": 1}, "/title"), ({"description": None}, "/description"),
    ({"examples": {}}, "/examples"), ({"deprecated": "yes"}, "/deprecated"),
    ({"readOnly": 0}, "/readOnly"), ({"$comment": []}, "/$comment"), ({"format": 1}, "/format"),
    ({"$schema": 1}, "/$schema"), ({"unevaluatedItems": 1}, "/unevaluatedItems"),
    ({"dependentSchemas": {"a": 1}}, "/dependentSchemas/a"),
    ({"contentSchema": 1}, "/contentSchema"),
]


@pytest.mark.parametrize(("schema", "pointer"), WRONG_SHAPES)
def test_wrong_shapes_are_refused_at_any_depth(schema: dict, pointer: str) -> None:
    holders: list[tuple[Callable[[object], dict], str]] = [
        (lambda held: held, ""),
        (lambda held: {"items": held}, "/items"),
        (lambda held: {"properties": {"a/b": held}}, "/properties/a~1b"),
        (lambda held: {"anyOf": [True, {"not": held}]}, "/anyOf/1/not"),
        (lambda held: {"$defs": {"": {"if": held}}}, "/$defs//if"),
        (lambda held: {"$ref": "#/x-odd/place", "x-odd": {"place": held}}, "/x-odd/place"),
    ]
    for hold, above in holders:
        with pytest.raises(tam.SchemaError) as caught:
            check_schema(hold(copy.deepcopy(schema)))
        assert caught.value.details["pointer"] == above + pointer


@pytest.mark.parametrize("schema", [None, 1, "a", [], [{}], 1.0], ids=brief)
def test_what_is_no_schema_at_all(schema: object) -> None:
    for check in (check_schema, lambda held: tam_tick.violations(held, 1)):
        with pytest.raises(tam.SchemaError) as caught:
            check(schema)
        assert caught.value.details["pointer"] == ""


@pytest.mark.parametrize("schema", [
    True, False, {}, {"const": None}, {"default": {"type": 5}}, {"enum": [{"$ref": "nowhere"}]},
    {"examples": [{"pattern": "("}]}, {"properties": {"$ref": {"type": "null"}, "pattern": True}},
    {"x-anything": {"type": 5}}, {"minLength": 2.0, "multipleOf": 1e-300}, {"required": []},
    {"$id": "https://example.com/a", "$schema": "https://json-schema.org/draft/2020-12/schema"},
    {"maximum": 10**400, "minItems": 10**400}, {"enum": []}, {"type": ["null", "integer"]},
    {"properties": {"child": {"$ref": "#"}}}, {"items": {"anyOf": [{"$ref": "#"}, False]}},
], ids=brief)
def test_schemas_that_are_fine(schema: object) -> None:
    check_schema(schema)
    for value in (None, True, 1, 1.5, "a", [], [1], {}, {"a": 1}):
        tam_tick.violations(schema, value)


def test_a_schema_that_was_never_checked_raises_nothing_else() -> None:
    for schema, _ in WRONG_SHAPES:
        for value in (None, True, 1, 1.5, "a", [1, 1], {"a": 1}):
            try:
                tam_tick.violations(schema, value)
            except tam.SchemaError:
                pass


def test_unchecked_words() -> None:
    assert unchecked_words(schema_of_a_task()) == []
    assert unchecked_words(True) == []
    annotations = {
        "$id": "a", "$schema": "b", "$comment": "c", "title": "d", "description": "e",
        "default": 1, "examples": [], "deprecated": True, "readOnly": True, "writeOnly": True,
        "format": "date", "contentEncoding": "base64", "contentMediaType": "a/b", "x-order": 1,
        "contentSchema": {}, "$defs": {}, "then": {}, "minContains": 1,
    }
    assert unchecked_words(annotations) == []
    schema = {
        "minLenght": 1,
        "const": {"notAKeyword": 1},
        "properties": {"notAKeyword": {"$id": "a", "unevaluatedProperties": False}},
        "anyOf": [{"$dynamicRef": "#a"}, {"dependentSchemas": {"b": {"additionalItems": {}}}}],
    }
    assert unchecked_words(schema) == [
        "$dynamicRef", "$id", "additionalItems", "dependentSchemas", "minLenght",
        "unevaluatedProperties",
    ]


BEYOND = [
    "(?i:a)", "(?i-s:a)", "(?<=a+)b", "(?<!a*)b", r"(a)\1", r"(?<n>a)\k<n>", r"\p{Greek}",
    r"\p{Script=Greek}", "a{9" + "9" * 6000 + "}", "(" * 2000 + ")" * 2000, "a" * 10_001,
]


@pytest.mark.parametrize("pattern", BEYOND, ids=brief)
def test_what_goes_beyond_the_validator_is_no_mistake_of_the_schema(pattern: str) -> None:
    for word, held in (("pattern", pattern), ("patternProperties", {pattern: True})):
        schema = {"items": {word: held}}
        with pytest.raises(tam.SchemaError) as caught:
            check_schema(schema)
        assert caught.value.details == {"unsupported": True, "pointer": "/items/" + word}
        assert unchecked_words(schema) == [word]


@pytest.mark.parametrize("pattern", ["(", "(?P<n>a)", "(?i)a", "(?>a)", r"\pL", r"\p{", "[z-a]"])
def test_what_is_wrong_is_not_said_to_be_unsupported(pattern: str) -> None:
    schema = {"allOf": [{"pattern": "(?<=a+)b"}, {"pattern": pattern}]}
    with pytest.raises(tam.SchemaError) as caught:
        check_schema(schema)
    assert caught.value.details == {"pointer": "/allOf/1/pattern"}


def test_references_and_sizes_beyond_the_validator() -> None:
    deep: dict = {}
    for _ in range(300):
        deep = {"items": deep}
    for schema in ({"$ref": "other.json"}, {"$ref": "#anchor"}, deep):
        with pytest.raises(tam.SchemaError) as caught:
            check_schema(schema)
        assert caught.value.details["unsupported"] is True
    with pytest.raises(tam.SchemaError) as caught:
        check_schema({"$ref": "#/$defs/missing"})
    assert "unsupported" not in caught.value.details
    assert unchecked_words({"$ref": "other.json"}) == ["$ref"]


def test_an_unsupported_keyword_is_skipped_and_the_others_are_checked() -> None:
    odd = {"pattern": "(?<=a+)b"}
    schema = {
        "required": ["must"],
        "properties": {"text": {**odd, "maxLength": 3}, "sub": {"allOf": [odd, {"minLength": 2}]}},
    }
    with pytest.raises(tam.SchemaError):
        tam_tick.violations(schema, {"must": 1, "text": "b"})
    skipped: set[str] = set()
    found = tam_tick.violations(schema, {"text": "long", "sub": "x"}, skipped=skipped)
    assert sorted(pointer for pointer, _ in found) == ["", "/sub", "/text"]
    assert skipped == {"pattern"}


@pytest.mark.parametrize(("schema", "value", "word"), [
    ({"not": {"pattern": "(?<=a+)b"}}, "b", "not"),
    ({"oneOf": [{"pattern": "(?<=a+)b"}, {"type": "string"}]}, "b", "oneOf"),
    ({"if": {"pattern": "(?<=a+)b"}, "else": False}, "b", "if"),
    ({"contains": {"pattern": "(?<=a+)b"}}, ["b"], "contains"),
    ({"propertyNames": {"pattern": "(?<=a+)b"}}, {"b": 1}, "propertyNames"),
    ({"patternProperties": {"(?<=a+)b": {}}, "additionalProperties": False}, {"b": 1},
     "additionalProperties"),
    ({"$ref": "other.json"}, 1, "$ref"),
])
def test_what_hangs_on_an_unsupported_keyword_is_skipped_with_it(
        schema: dict, value: object, word: str) -> None:
    skipped: set[str] = set()
    assert tam_tick.violations(schema, value, skipped=skipped) == []
    assert word in skipped


def test_what_is_skipped_costs_no_more_than_its_steps() -> None:
    schema = {"items": {"pattern": "(?:a{99}){99}(?<=b+)"}}
    with ending(), pytest.raises(tam.SchemaError, match="steps"):
        tam_tick.violations(schema, ["a"] * 1_000_000, skipped=set())


# ---- laws that hold for every schema and value


def random_value(dice: random.Random, depth: int) -> object:
    if depth == 0 or dice.random() < 0.5:
        return dice.choice([None, True, False, 0, 1, 1.0, 2, 0.5, "", "a", "ab", "é😀"])
    if dice.random() < 0.5:
        return [random_value(dice, depth - 1) for _ in range(dice.randint(0, 3))]
    return {dice.choice("abc"): random_value(dice, depth - 1) for _ in range(dice.randint(0, 3))}


def random_schema(dice: random.Random, depth: int) -> object:
    if dice.random() < 0.1:
        return dice.random() < 0.5
    leaves = {
        "type": dice.choice(["null", "boolean", "integer", "number", "string", "array", "object"]),
        "enum": [random_value(dice, 1), random_value(dice, 2)], "minimum": 1, "maxLength": 1,
        "minItems": 1, "uniqueItems": True, "required": ["a"], "multipleOf": 2,
    }
    words = dice.sample(sorted(leaves), dice.randint(0, 2))
    schema = {word: leaves[word] for word in words}
    if depth:
        for word in dice.sample(["properties", "items", "contains", "allOf", "anyOf", "oneOf",
                                 "not", "additionalProperties", "if", "then"], 2):
            part = random_schema(dice, depth - 1)
            several = [part, random_schema(dice, depth - 1)]
            schema[word] = (several if word.endswith("Of") else
                            {"a": part, "b": several[1]} if word == "properties" else part)
    return schema


def test_laws() -> None:
    dice = random.Random(11)
    for _ in range(700):
        one, other = random_schema(dice, 2), random_schema(dice, 1)
        value = random_value(dice, 3)
        before = copy.deepcopy((one, other, value))
        first, second = fits(one, value), fits(other, value)
        assert fits({"not": one}, value) != first
        assert fits({"allOf": [one, other]}, value) == (first and second)
        assert fits({"anyOf": [one, other]}, value) == (first or second)
        assert fits({"oneOf": [one, other]}, value) == (first != second)
        assert fits({"if": one, "then": other, "else": False}, value) == (first and second)
        assert fits({"$defs": {"one": one}, "$ref": "#/$defs/one"}, value) == first
        assert fits({"items": one}, [value, value]) == first
        assert fits({"contains": one}, [value]) == first
        assert fits({"properties": {"p": one}}, {"p": value}) == first
        assert fits({"additionalProperties": one}, {"p": value}) == first
        assert fits({"const": value}, value) and not fits({"const": [value]}, value)
        assert not fits({"uniqueItems": True}, [value, copy.deepcopy(value)])
        assert (one, other, value) == before


# ---- hostile input: an error of tam's own, and soon


def nested_schema(word: str, depth: int) -> object:
    schema: object = {"type": "string"}
    for _ in range(depth):
        schema = {word: [schema] if word in ("allOf", "anyOf", "oneOf") else schema}
    return schema


def nested_list(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


def fan(word: str, last: object) -> dict:
    """A schema whose evaluation doubles with each of 60 references."""
    schema: dict = {"$defs": {"s60": last}, "$ref": "#/$defs/s0"}
    for number in range(60):
        twice = [{"$ref": f"#/$defs/s{number + 1}"}] * 2
        both = {"not": {"allOf": twice}} if word == "not" else {word: twice}
        schema["$defs"][f"s{number}"] = both
    return schema


@pytest.mark.parametrize("word", ["items", "not", "allOf", "anyOf", "oneOf", "if", "contains",
                                  "propertyNames", "additionalProperties"])
def test_deep_schemas(word: str) -> None:
    check_schema(nested_schema(word, 150))
    tam_tick.violations(nested_schema(word, 150), nested_list(150))
    for depth in (tam.MAX_DEPTH, 5_000, 50_000):
        schema = nested_schema(word, depth)
        for check in (check_schema, unchecked_words):
            with pytest.raises(tam.SchemaError, match="deep"):
                check(schema)
        try:
            tam_tick.violations(schema, nested_list(10))
        except tam.SchemaError as error:
            assert "deep" in error.message


def test_deep_values() -> None:
    endless: list = []
    endless.append(endless)
    for value in (nested_list(100_000), endless):
        for schema in ({"items": {"$ref": "#"}}, {"anyOf": [False, {"items": {"$ref": "#"}}]},
                       {"const": value}, {"enum": [1, value]}, {"not": {"const": value}}):
            with pytest.raises(tam.SchemaError, match="deep"):
                tam_tick.violations(schema, value)
        with pytest.raises(tam.SchemaError, match="deep"):
            tam_tick.violations({"uniqueItems": True}, [value, value])
        assert tam_tick.violations({"type": "array"}, value) == []
        assert tam_tick.violations({"type": "null"}, value) != []


@pytest.mark.parametrize(("schema", "value"), [
    ({"$defs": {f"s{n}": {"$ref": f"#/$defs/s{n + 1}"} for n in range(5_000)} | {"s5000": {}},
      "$ref": "#/$defs/s0"}, 1),
    (fan("allOf", {}), 1),
    (fan("anyOf", False), 1),
    (fan("oneOf", False), 1),
    (fan("not", {}), 1),
    ({"items": {"$ref": "#/$defs/s"}, "$defs": {"s": {"enum": [[n] for n in range(5_000)]}}},
     [[-1]] * 5_000),
    ({"allOf": [{"const": "a" * 1_000_000 + "b"}] * 100_000}, "a" * 1_000_000 + "c"),
    ({"patternProperties": {"a{9000}" + str(n): {} for n in range(20_000)}}, {"a": 1}),
    ({"items": {"pattern": "a"}}, ["b" * 10_000] * 10_000),
    ({"items": {"type": "string"}}, [0] * 1_000_000),
    ({"additionalProperties": {"items": False}}, {"k" * 1_000_000: [0] * 100_000}),
    ({"multipleOf": 10**200_000 + 1}, 10**2_000_000),
], ids=brief)
def test_too_much_work_is_an_error(schema: dict, value: object) -> None:
    with ending(), pytest.raises(tam.SchemaError, match="steps|deep"):
        tam_tick.violations(schema, value, steps=300_000)


@pytest.mark.parametrize("pattern", [
    "(a+)+$", "^(a|a)*$", "(a*)*b", "(.*)*x", "^(([a-z])+.)+[A-Z]([a-z])+$", "(x+x+)+y|(a|aa)+$",
    "^(?=(a+)+$)b", "^(?!(a|aa)+$)b", "(?:a?){40}(?:a){40}b", "^(?:(?=.*x)a)*b", "a*a*a*a*b",
])
def test_a_pattern_that_takes_too_long_ends_in_an_error(
        pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where unsupported words are skipped: the next item would take as long."""
    monkeypatch.setattr(tam_tick, "PATTERN_TIME", 0.15)
    schema, value = {"items": {"pattern": pattern}}, ["a" * 100_000 + "!"] * 1_000
    for skipped in (None, set()):
        with ending(), pytest.raises(tam.SchemaError, match="takes too long"):
            tam_tick.violations(schema, value, skipped=skipped)


def test_a_check_leaves_no_process_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *words, **options: started.append(
        popen(*words, **options)) or started[-1])
    tam_tick.violations({"items": {"pattern": "a"}}, ["a", "b"])
    assert len(started) == 1 and started[0].returncode is not None


def test_the_steps_are_a_keyword() -> None:
    schema = {"items": {"type": "integer"}}
    assert tam_tick.violations(schema, [1] * 20, steps=400) == []
    with pytest.raises(tam.SchemaError) as caught:
        tam_tick.violations(schema, [1] * 20, steps=200)
    assert caught.value.details["steps"] == 200
    with pytest.raises(tam.SchemaError):
        check_schema({"allOf": [{"type": "null"} for _ in range(20)]}, steps=20)
    for size, fitting in ((100, True), (100_000, False)):  # long items cost more than short ones
        texts = [str(number) + "x" * size for number in range(10)]
        if fitting:
            assert tam_tick.violations({"uniqueItems": True}, texts, steps=100) == []
        else:
            with pytest.raises(tam.SchemaError, match="steps"):
                tam_tick.violations({"uniqueItems": True}, texts, steps=100)


def test_numbers_out_of_every_range() -> None:
    for number in (10**400, -10**400, 10**5_000, 1e308, -1e308, 5e-324, 0.0, -0.0):
        for bound in (0.1, 1e-300, 1e308, 7, 10**400, 10**5_000):
            for word in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
                         "multipleOf", "const", "minLength", "maxItems"):
                if word in ("minLength", "maxItems") and bound < 1:
                    continue
                tam_tick.violations({word: bound, "type": "integer"}, number)
                tam_tick.violations({word: bound, "type": "null"}, "a")
                tam_tick.violations({word: bound, "uniqueItems": True}, [number, number])


@pytest.mark.parametrize("value", [(1,), {1}, b"a", object(), 1j, [(1,)], {"a": {"b": b"c"}},
                                   float("nan"), float("inf"), [float("-inf")]], ids=brief)
def test_values_that_json_does_not_have(value: object) -> None:
    schema = {"items": {"$ref": "#"}, "additionalProperties": {"$ref": "#"}, "multipleOf": 1}
    with pytest.raises(tam.SchemaError, match="no JSON value"):
        tam_tick.violations(schema, value)


@pytest.mark.parametrize("item", [(1,), b"a", [{1}]], ids=brief)
def test_items_that_json_does_not_have_are_not_compared(item: object) -> None:
    with pytest.raises(tam.SchemaError, match="no JSON value"):
        tam_tick.violations({"uniqueItems": True}, [item])


def test_objects_that_hold_themselves() -> None:
    schema: dict = {}
    schema["not"] = schema
    with pytest.raises(tam.SchemaError):
        check_schema(schema)
    with pytest.raises(tam.SchemaError):
        tam_tick.violations(schema, 1)


# ---- much of it


def test_unique_items_is_not_quadratic() -> None:
    schema = {"uniqueItems": True}
    same_hash = [number * (2**61 - 1) for number in range(100_000)]
    for items in (list(range(100_000)), same_hash, [[n, {"a": n}] for n in range(50_000)]):
        with ending():
            assert tam_tick.violations(schema, items) == []
        assert tam_tick.violations(schema, items[:5_000]) == []
    assert len(tam_tick.violations(schema, [0] * 20_000)) == 19_999


def test_a_long_text_and_an_everyday_pattern() -> None:
    schema = {"pattern": "^[^\\x00]*$"}
    assert tam_tick.violations(schema, "é" * 65_536) == []
    assert len(tam_tick.violations(schema, "é" * 65_535 + "\0")) == 1
