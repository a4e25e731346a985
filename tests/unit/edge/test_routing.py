"""Which writes may wait: the built-in policy as the contract lists it, and what a policy of one's own may say."""

import pytest

from claudemesh.edge.routing import (
    Each,
    Policy,
    RouteClass,
    Routed,
    Rule,
    load_built_in,
    load_policy,
    read_path,
    strip_fields,
)
from claudemesh.kernel.canonical import Json
from claudemesh.kernel.errors import ConfigError, InvalidRequest

HUB = load_built_in()
APPEND, REPLACE, BULK, ONLINE_ONLY = RouteClass

SMALL = """
name = "own"
reads = ["/rows/{id}", "/stats"]
stale_reads = ["/stats"]

[[route]]
method = "PUT"
path = "/rows/{id}"
class = "replace"
entity = "rows/{id}"
supersedes = ["state", "note"]
strip = ["token", "who.password"]

[[route]]
method = "POST"
path = "/rows/many"
class = "bulk"
each = { list = "rows", id = "row", becomes = "PUT /rows/{id}" }

[[route]]
method = "DELETE"
path = "/rows/{id}"
class = "online_only"
"""


@pytest.mark.req("R3")
@pytest.mark.parametrize(
    ("method", "path", "route_class", "entity"),
    [
        ("POST", "/progress/", APPEND, None),
        ("POST", "/messages/", APPEND, None),
        ("POST", "/token-events/", APPEND, None),
        ("POST", "/decisions/", APPEND, None),
        ("PATCH", "/messages/m1/read", APPEND, "messages/m1"),
        ("PATCH", "/tasks/t1", REPLACE, "tasks/t1"),
        ("POST", "/tasks/bulk-status-sync", BULK, None),
        ("PATCH", "/decisions/d1", REPLACE, "decisions/d1"),
        ("POST", "/decisions/d1/resolve", REPLACE, "decisions/d1"),
        ("PATCH", "/workplans/w1", REPLACE, "workplans/w1"),
    ],
)
def test_the_hubs_routes_are_sorted_as_the_contract_says(
    method: str, path: str, route_class: RouteClass, entity: str | None
) -> None:
    routed = HUB.classify(method, path)
    assert (routed.route_class, routed.entity) == (route_class, entity)


@pytest.mark.req("R3")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", "/tasks/t1"),
        ("DELETE", "/progress/"),
        ("POST", "/tasks/"),
        ("POST", "/workplans/"),
        ("PUT", "/tasks/t1"),
        ("POST", "/repos/sync"),
        ("POST", "/import"),
        ("POST", "/consistency/sweep"),
        ("GET", "/fabric/export"),
        ("POST", "/admin/bootstrap"),
        ("POST", "/progress"),
        ("POST", "/progress//"),
        ("POST", "/PROGRESS/"),
        ("POST", "/progress/x"),
        ("post", "/progress/"),
        ("PATCH", "/tasks/"),
        ("PATCH", "/tasks/a/b"),
        ("PATCH", "/task%73/t1"),
        ("PATCH", "x/tasks/t1"),
        ("PATCH", "/tasks/t1\n/x"),
    ],
)
def test_everything_else_is_online_only(method: str, path: str) -> None:
    assert HUB.classify(method, path) == Routed(None, ONLINE_ONLY, {}, None)


@pytest.mark.req("R3")
def test_the_hub_has_no_other_routes_that_wait() -> None:
    assert len(HUB.rules) == 10
    assert (HUB.recovery, HUB.probe, HUB.stale_reads) == ("POST /progress/", "/health", ("/state/summary",))


@pytest.mark.req("R3")
def test_two_spellings_of_a_row_are_one_entity() -> None:
    assert HUB.classify("PATCH", "/tasks/%74%31").entity == HUB.classify("PATCH", "/tasks/t1").entity
    routed = HUB.classify("PATCH", "/tasks/a%2Fb%20c")
    assert routed.entity == "tasks/a/b c"
    assert routed.rule
    assert read_path(routed.rule, routed.params) == "/tasks/a%2Fb%20c"


@pytest.mark.req("R3")
@pytest.mark.parametrize(
    ("path", "body", "is_status_write"),
    [
        ("/tasks/t1", {"status": "done"}, True),
        ("/tasks/t1", {"status": "done", "expected_status": "todo", "expected_updated_at": "x"}, True),
        ("/workplans/w1", {"status": "done"}, True),
        ("/tasks/t1", {"status": "done", "title": "x"}, False),
        ("/tasks/t1", {"title": "x"}, False),
        ("/tasks/t1", {"expected_status": "todo"}, False),
        ("/tasks/t1", ["status"], False),
        ("/messages/m1/read", {"status": "done"}, False),
    ],
)
def test_only_a_write_of_nothing_but_the_status_supersedes_others(
    path: str, body: Json, *, is_status_write: bool
) -> None:
    rule = HUB.classify("PATCH", path).rule
    assert rule
    assert rule.is_superseding(body) is is_status_write


@pytest.mark.req("R3")
def test_a_resolution_supersedes_nothing() -> None:
    rule = HUB.classify("POST", "/decisions/d1/resolve").rule
    assert rule
    assert not rule.is_superseding({"status": "done"})


@pytest.mark.req("R3")
def test_a_bulk_is_one_write_for_each_of_its_tasks() -> None:
    rule = HUB.classify("POST", "/tasks/bulk-status-sync").rule
    assert rule
    parts = HUB.split(rule, {"tasks": [{"id": "t1", "status": "done"}, {"id": "a/b", "expected_status": "x"}]})
    assert [(part.routed.entity, part.path, part.body) for part in parts] == [
        ("tasks/t1", "/tasks/t1", {"status": "done"}),
        ("tasks/a/b", "/tasks/a%2Fb", {"expected_status": "x"}),
    ]
    assert {part.routed.route_class for part in parts} == {REPLACE}


@pytest.mark.req("R3")
@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"tasks": []},
        {"tasks": {}},
        {"tasks": ["t1"]},
        {"tasks": [{"status": "done"}]},
        {"tasks": [{"id": 7}]},
        {"tasks": [{"id": ""}]},
        {"tasks": [{"id": ".."}]},
        {"tasks": [{"id": "t"}] * 501},
    ],
)
def test_a_bulk_that_is_no_list_of_rows_is_refused(body: Json) -> None:
    rule = HUB.classify("POST", "/tasks/bulk-status-sync").rule
    assert rule
    with pytest.raises(InvalidRequest):
        HUB.split(rule, body)


def test_what_is_no_bulk_is_not_split() -> None:
    with pytest.raises(ValueError, match="no bulk"):
        HUB.split(HUB.rules[0], {})


def test_reads_are_selected() -> None:
    assert HUB.is_read("/tasks/t1")
    assert HUB.is_read("/state/summary")
    assert HUB.is_stale_read("/state/summary")
    assert not HUB.is_read("/admin/")
    assert not HUB.is_stale_read("/tasks/t1")


# --- a policy of one's own ---------------------------------------------------------------------------


@pytest.mark.req("R3")
def test_a_policy_of_ones_own_says_all_of_it() -> None:
    policy = load_policy(SMALL)
    put, many, delete = policy.rules
    assert put == Rule(
        "PUT", "/rows/{id}", REPLACE, "rows/{id}", ("state", "note"), ("token", "who.password"), None, None, None
    )
    assert many.each == Each("rows", "row", "PUT /rows/{id}")
    assert policy.classify("DELETE", "/rows/1") == Routed(delete, ONLINE_ONLY, {"id": "1"}, None)
    assert put.is_superseding({"note": "x", "expected_status": "new"})
    assert read_path(put, {}) is None
    assert (policy.recovery, policy.probe) == (None, "/health")


@pytest.mark.req("R3", "R6")
def test_named_fields_are_stripped_wherever_they_are() -> None:
    body: Json = {"token": 1, "who": [{"password": 2, "name": "ana"}, 3], "rest": {"token": 4}}
    assert strip_fields(body, ("token", "who.password")) == {"who": [{"name": "ana"}, 3], "rest": {"token": 4}}
    assert strip_fields({"who": "ana"}, ("who.password", "other")) == {"who": "ana"}
    assert strip_fields({"a": {"b": 1}, "c": 2}, ("a.b",)) == {"a": {}, "c": 2}
    assert body == {"token": 1, "who": [{"password": 2, "name": "ana"}, 3], "rest": {"token": 4}}


def with_route(line: str) -> str:
    return f"{SMALL}\n[[route]]\n{line}\n"


@pytest.mark.req("R3")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name = ", "Invalid value"),
        ("route = []", "name"),
        (f"colour = 1\n{SMALL}", "colour"),
        (with_route('method = "GET"\npath = "/x"\nclass = "append"'), "POST|PUT|PATCH|DELETE"),
        (with_route('method = "POST"\npath = "/x"\nclass = "sometimes"'), "sometimes"),
        (with_route('method = "POST"\npath = "/x"\nclass = "append"\ncolour = 1'), "colour"),
        (with_route('method = "POST"\npath = "x"\nclass = "append"'), "no path"),
        (with_route('method = "POST"\npath = "/x?y"\nclass = "append"'), "no path"),
        (with_route('method = "POST"\npath = "/{a}/{a}"\nclass = "append"'), "no path"),
        (with_route('method = "DELETE"\npath = "/x"\nclass = "append"'), "cannot be queued"),
        (with_route('method = "POST"\npath = "/x"\nclass = "replace"'), "needs an entity"),
        (with_route('method = "POST"\npath = "/{a}"\nclass = "replace"\nentity = "{a}"'), "kind and one parameter"),
        (with_route('method = "POST"\npath = "/{a}"\nclass = "replace"\nentity = "x/{b}"'), "the parameter b"),
        (with_route('method = "POST"\npath = "/x"\nclass = "append"\nsupersedes = ["a"]'), "supersede each other"),
        (with_route('method = "POST"\npath = "/x"\nclass = "bulk"'), "with `each`"),
        (
            with_route('method = "POST"\npath = "/x"\nclass = "append"\neach = {list="a", id="b", becomes="c"}'),
            "with `each`",
        ),
        (
            with_route('method = "POST"\npath = "/x"\nclass = "bulk"\neach = {list="a", id="b", becomes="PUT /x"}'),
            "PUT /x is no replace route",
        ),
        (with_route('method = "PUT"\npath = "/rows/{row}"\nclass = "append"'), "PUT /rows/{}: two rules"),
        (with_route('method = "POST"\npath = "/x"\nclass = "append"\nexample = "{"'), "no JSON"),
        (f'recovery = "POST /rows/many"\n{SMALL}', "no append route"),
        (f'probe = "http://other/"\n{SMALL}', "no path"),
        (f'expectations = ["version"]\n{SMALL}', "expectations"),
        (SMALL.replace('stale_reads = ["/stats"]', 'stale_reads = ["/x"]'), "none of reads"),
        (SMALL.replace('stale_reads = ["/stats"]', 'stale_reads = ["/rows/{id}"]'), "has a parameter"),
    ],
)
def test_a_policy_that_cannot_be_kept_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_policy(text)
    assert reason in refused.value.detail


@pytest.mark.req("R3")
def test_all_that_is_wrong_is_said_at_once() -> None:
    broken = SMALL.replace('entity = "rows/{id}"', "")
    with pytest.raises(ConfigError) as refused:
        load_policy(f'probe = "x"\nrecovery = "y"\n{broken}')
    problems = refused.value.extras["problems"]
    assert isinstance(problems, list)
    assert len(problems) == 3


def test_a_policy_is_a_value() -> None:
    assert Policy("x", HUB.rules) == Policy("x", HUB.rules)
    assert Policy("x", HUB.rules) != Policy("x", ())
