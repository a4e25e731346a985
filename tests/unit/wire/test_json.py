"""Whatever a reader of JSON returns can be written again."""

import json
from typing import Any

import msgspec
import orjson
import pytest

from claudemesh.wire.json import dump_json


def nested(levels: int) -> bytes:
    return b'{"x":[' * (levels // 2) + b"]}" * (levels // 2)


@pytest.mark.parametrize(
    "value", [None, True, 1, 1.5, "é", [], {}, {"a": [1, {"b": None}], "c": "d"}, [float("nan")]]
)
def test_what_orjson_can_write_is_written_as_it_does(value: object) -> None:
    assert dump_json(value) == orjson.dumps(value)


@pytest.mark.parametrize("levels", [254, 256, 300, 1000, 1024])
def test_as_deep_as_it_can_be_read_it_is_written(levels: int) -> None:
    raw = nested(levels)

    assert dump_json(orjson.loads(raw)) == raw


def test_an_integer_of_any_size_keeps_every_digit() -> None:
    raw = b'{"many":[-1180591620717411303424,1180591620717411303424,true,0.5]}'

    assert dump_json(msgspec.json.decode(raw)) == raw


def test_half_a_surrogate_pair_is_replaced_and_the_rest_can_be_read_by_everyone() -> None:
    value = json.loads(r'{"\ud800": ["a\udc00b", "\ud83d\ude00"]}')

    assert orjson.loads(dump_json(value)) == {"\ufffd": ["a\ufffdb", "\U0001f600"]}


def test_names_and_texts_are_escaped_also_when_it_is_written_out() -> None:
    value = {'"\n': ["\\", 2**70, ("é",)]}

    assert msgspec.json.decode(dump_json(value)) == {'"\n': ["\\", 2**70, ["é"]]}


def test_what_is_no_json_value_is_said_to_be_none() -> None:
    itself: list[Any] = []
    itself.append(itself)

    with pytest.raises(TypeError):
        dump_json({"a": object()})
    with pytest.raises(TypeError):
        dump_json({1: 2})
    with pytest.raises(ValueError, match="itself"):
        dump_json(itself)
