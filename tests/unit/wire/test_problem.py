"""An error that crosses a hop is the same error on the other side."""

import pytest

from claudemesh.kernel.errors import (
    DependencyError,
    IdempotencyConflict,
    MeshError,
    NotFound,
    RateLimited,
    RequestError,
)
from claudemesh.wire.problem import BY_CODE, parse, render

EXTRAS = {"retry_after_ms": 1500, "reason": "why", "flag": True, "nothing": None, "names": ["a", "b"]}


def build(error_class: type[MeshError]) -> MeshError:
    if issubclass(error_class, IdempotencyConflict):
        return error_class("detail", conflict="word", fingerprint_prefix="00" * 8, **EXTRAS)
    return error_class("detail", **EXTRAS)


@pytest.mark.req("F7")
@pytest.mark.parametrize("error_class", BY_CODE.values(), ids=lambda c: c.code)
def test_every_class_survives_the_way_there_and_back(error_class: type[MeshError]) -> None:
    error = build(error_class)
    problem = render(error, "/requests/1")
    back = parse(error.status, problem)
    assert type(back) is error_class
    assert (back.detail, back.extras) == (error.detail, error.extras)
    assert problem["type"] == f"urn:claudemesh:problem:{error_class.code}"
    assert problem["title"] == error_class.title
    assert problem["status"] == error_class.status
    assert problem["retry"] in ("no", "same_id", "after")
    assert problem["instance"] == "/requests/1"


@pytest.mark.req("F7")
def test_no_two_classes_share_a_code() -> None:
    assert len(BY_CODE) == len(list(MeshError.family()))


def test_a_title_never_varies_and_an_empty_detail_is_left_out() -> None:
    assert "detail" not in render(NotFound())
    assert "instance" not in render(NotFound())
    assert str(NotFound()) == NotFound.title


def test_an_extra_cannot_replace_what_the_contract_says() -> None:
    problem = render(NotFound("x", code="fine", status=200, retry="same_id"))
    assert (problem["code"], problem["status"], problem["retry"]) == ("not_found", 404, "no")


def test_a_conflict_carries_its_word_and_prefix_as_attributes_too() -> None:
    back = parse(409, {"code": "idempotency_key_reused", "conflict": "w", "fingerprint_prefix": "ab"})
    assert isinstance(back, IdempotencyConflict)
    assert (back.conflict, back.fingerprint_prefix) == ("w", "ab")


@pytest.mark.parametrize(
    ("status", "problem", "kind"),
    [
        (418, {"code": "from_the_future", "detail": "d"}, RequestError),
        (503, {"code": "from_the_future"}, DependencyError),
        (502, "<html>", DependencyError),
        (500, None, DependencyError),
        (404, {}, RequestError),
        (429, {"code": "from_the_future"}, RateLimited),
        (400, {"code": "from_the_future"}, RequestError),
        (408, "<html>", DependencyError),
        (425, None, DependencyError),
        (409, {"code": "from_the_future", "retry": "after"}, RateLimited),
        (409, {"code": "from_the_future", "retry": "same_id"}, DependencyError),
        (503, {"code": "from_the_future", "retry": "no"}, RequestError),
        (404, {"code": "from_the_future", "retry": ["no"]}, RequestError),
        (200, [1, 2], DependencyError),
    ],
)
def test_an_answer_of_an_unknown_server_is_judged_by_its_status(status: int, problem: object, kind: type) -> None:
    back = parse(status, problem)
    assert type(back) is kind
    assert back.extras["unknown_status"] == status


def test_an_unknown_code_is_kept_for_people_to_read() -> None:
    back = parse(418, {"code": "from_the_future", "detail": "d", "unknown_status": 7})
    assert back.detail == "from_the_future: d"
    assert back.extras == {"unknown_status": 418}


@pytest.mark.parametrize(
    "problem",
    [
        {"code": "not_found", "self": 1, "error_class": 2, "cls": 3},
        {"code": "not_found", "detail": 7, "deep": {"a": 1}, "mixed": [1, "a"], "fraction": 1.5},
        {"code": ["not_found"]},
        {"code": "idempotency_key_reused"},
        {"code": "idempotency_key_reused", "conflict": 3, "fingerprint_prefix": None, "self": "x"},
        {"code": "idempotency_key_reused", "conflict": 10**5000, "fingerprint_prefix": ["a"]},
        {"code": "nope", "unknown_status": 3},
    ],
    ids=lambda problem: str(list(problem)),
)
def test_a_hostile_problem_is_still_only_an_error(problem: dict[str, object]) -> None:
    assert isinstance(parse(404, problem), MeshError)
