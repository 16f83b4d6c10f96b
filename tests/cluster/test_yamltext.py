"""YAML read as people mean it, and written so that it is read back the same."""

import math
from typing import Any

import pytest

from cluster import yamltext


def value(text: str) -> Any:
    return yamltext.parse(f"key: {text}\n", "run.yaml").data["key"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1e-3", 0.001), ("1E-3", 0.001), ("1e5", 100000), ("1E5", 100000), ("1e+5", 100000),
        ("-2e-4", -0.0002), ("1.5e3", 1500.0), (".5", 0.5), ("1.", 1.0), ("+7", 7), ("-7", -7),
        ("012", 12), ("-012", -12), ("007.5", 7.5), ("1_000", 1000), ("1_000.5", 1000.5),
        ("0x1F", 31), ("0", 0), ("on", "on"), ("off", "off"), ("yes", "yes"), ("no", "no"),
        ("On", "On"), ("y", "y"), ("n", "n"), ("true", True), ("false", False), ("True", True),
        ("FALSE", False), ("tRue", "tRue"), ("12:30", "12:30"), ("1:20:30", "1:20:30"),
        ("2024-01-31", "2024-01-31"), ("2024-01-31T10:00:00Z", "2024-01-31T10:00:00Z"),
        ("1.2.3", "1.2.3"), ("0x", "0x"), ("0x_", "0x_"), ("e5", "e5"), ("1e", "1e"),
        ("null", None), ("~", None), ("", None), ("none", "none"), ("=", "="), ("<<", "<<"),
        ("'12'", "12"), ('"true"', "true"), ("'1e-3'", "1e-3"), ("''", ""), ("[1e-2, on, '3']",
        [0.01, "on", "3"]), ("{a: 012}", {"a": 12}), ("a # comment", "a"), ("a#b", "a#b"),
    ],
)  # fmt: skip
def test_scalars_are_what_people_mean(text: str, meant: Any) -> None:
    found = value(text)
    assert found == meant
    assert type(found) is type(meant)


def test_infinities_and_nan() -> None:
    assert value(".inf") == value(".Inf") == value("1e999") == math.inf
    assert value("-.inf") == -math.inf
    assert math.isnan(value(".nan"))
    assert value("inf") == "inf"
    assert value("nan") == "nan"


def test_block_scalars_stay_text() -> None:
    text = "key: |\n  12\n  on\nother: >\n  1e-3\n"
    assert yamltext.parse(text, "run.yaml").data == {"key": "12\non\n", "other": "1e-3\n"}


def test_keys_are_words() -> None:
    assert yamltext.parse("on: 1\n12: 2\nnull: 3\n", "run.yaml").data == {
        "on": 1, "12": 2, "null": 3,
    }  # fmt: skip


def test_empty_texts_have_no_data() -> None:
    for text in ("", "\n\n", "# only a comment\n", "---\n"):
        assert yamltext.parse(text, "run.yaml").data is None


def test_lines_of_keys_and_items() -> None:
    document = yamltext.parse("a: 1\n\nb:\n  c:\n    - 5\n    - d: 2\n", "run.yaml")
    assert document.data == {"a": 1, "b": {"c": [5, {"d": 2}]}}
    assert document.lines[("a",)] == 1
    assert document.lines[("b",)] == 3
    assert document.lines[("b", "c")] == 4
    assert document.lines[("b", "c", 0)] == 5
    assert document.lines[("b", "c", 1, "d")] == 6


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "run.yaml:3:", "'a' is already set on line 1"),
        ("a:\n  b: 1\n  b: 1\n", "run.yaml:3:", "'b' is already set on line 2"),
        ("a: 1\n'a': 2\n", "run.yaml:2:", "already set"),
        ("a:\n\tb: 1\n", "run.yaml:2:", "spaces, not tabs"),
        ("a: [1, 2\n", "run.yaml:", "not valid YAML"),
        ("a: 1\nb: 'open\n", "run.yaml:", "not valid YAML"),
        ("a: 1\n b: 2\n", "run.yaml:2:", "not valid YAML"),
        ("a: &x [1]\nb: *x\n", "run.yaml:1:", "anchors"),
        ("a: &x 1\n", "run.yaml:1:", "anchors"),
        ("a: 1\nb: *x\n", "run.yaml:2:", "anchors"),
        ("a: 1\nb: !!python/object/apply:os.system [ls]\n", "run.yaml:2:", "python/object"),
        ("a: !!str 12\n", "run.yaml:1:", "tags"),
        ("a: !Ref 12\n", "run.yaml:1:", "!Ref"),
        ("--- !!map\na: 1\n", "run.yaml:1:", "tags"),
        ("? [1, 2]\n: 3\n", "run.yaml:1:", "a key must be a word"),
        ("a: 1\n---\na: 2\n", "run.yaml:2:", "another document"),
        ("a: \x07\n", "run.yaml:", "not valid YAML"),
        ("a: " + "[" * 1200, "run.yaml:", "nested too deeply"),
    ],
)
def test_errors_name_file_and_line(text: str, place: str, said: str) -> None:
    with pytest.raises(yamltext.YamlError) as caught:
        yamltext.parse(text, "run.yaml")
    message = str(caught.value)
    assert message.startswith(place)
    assert said in message
    assert "\n" not in message


def test_an_alias_bomb_is_refused_before_it_grows() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    with pytest.raises(yamltext.YamlError, match="anchors"):
        yamltext.parse("\n".join(rows), "bomb.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "12", "1e-3", "1e5", "1_000", "0x1F", "0x_", "012", ".inf", "-.inf", ".nan", "true",
        "False", "on", "off", "yes", "no", "null", "~", "", " ", " lead", "trail ", "12:30",
        "2024-01-31", "a: b", "- a", "# no comment", "a #b", "two\nlines\n", "\ttab", "é Ω 漢",
        "'quoted'", '"double"', "*star", "&and", "!tag", "%", "@", "`", "{", "[", "a" * 300,
        "word " * 60, "\x07", "=", "<<", "\u2028", "trailing:", "?", "|", ">",
    ],
)  # fmt: skip
def test_strings_survive_a_round_trip(text: str) -> None:
    data = {"key": text, "list": [text, {"inner": text}], text: 1}
    assert yamltext.parse(yamltext.dump(data), "dump").data == data


@pytest.mark.parametrize(
    "number", [0, -3, 10**30, 0.1, 1e-7, 1e5, 1e20, 1.5e300, -2.5e-300, math.inf, -math.inf, 1 / 3]
)
def test_numbers_survive_a_round_trip(number: float) -> None:
    found = yamltext.parse(yamltext.dump({"key": number}), "dump").data["key"]
    assert found == number
    assert type(found) is type(number)


def test_plain_data_survive_a_round_trip() -> None:
    shared = [1, 2]
    data = {"z": None, "a": {"t": True, "empty": {}, "none": []}, "s": shared, "again": shared}
    text = yamltext.dump(data)
    assert yamltext.parse(text, "dump").data == data
    assert list(yamltext.parse(text, "dump").data) == ["z", "a", "s", "again"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [("1", 1), ("[a, 1e-2]", ["a", 0.01]), ("{a: 1}", {"a": 1}), ("", None), ("12:30", "12:30")],
)
def test_one_value(text: str, meant: Any) -> None:
    assert yamltext.parse_value(text, "--set a") == meant
