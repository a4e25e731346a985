"""The OpenAPI document of a route table, from the same types that check the requests."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from claudemesh.asgi.routes import Route
from claudemesh.kernel.errors import InvalidRequest, JsonOnly, MeshError, PayloadTooLarge, Unauthenticated
from claudemesh.wire.problem import CONTENT_TYPE as PROBLEM_TYPE
from claudemesh.wire.problem import TYPE_PREFIX

VERSION: Final = "3.1.0"

_REF: Final = "#/components/schemas/{name}"
_PROBLEM: Final = "Problem"
_WITH_BODY: Final = (InvalidRequest, JsonOnly, PayloadTooLarge)

Json = dict[str, Any]


def openapi_document(
    title: str,
    version: str,
    routes: Iterable[Route],
    *,
    everywhere: tuple[type[MeshError], ...] = (),
    public_paths: frozenset[str] = frozenset(),
) -> Json:
    """Return the document. `everywhere` are the errors of whatever stands before the routes: guard, limits.

    If one of them is for want of a token, every path needs one but for the public ones.
    """
    table = list(routes)
    types = [kind for route in table for kind in (route.request, route.query, route.response) if kind is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    known = dict(zip(map(id, types), schemas, strict=True))
    paths: dict[str, Json] = defaultdict(dict)
    for route in table:
        paths[route.path][route.method.lower()] = _operation(route, known, components, everywhere)
    document: Json = {
        "openapi": VERSION,
        "info": {"title": title, "version": version},
        "paths": dict(paths),
        "components": {"schemas": {**components, _PROBLEM: _problem_schema()}},
    }
    if any(issubclass(error, Unauthenticated) for error in everywhere):
        document["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"bearer": []}]
        for path in public_paths & paths.keys():
            for operation in paths[path].values():
                operation["security"] = []
    return document


def _operation(
    route: Route, known: Mapping[int, Json], components: Mapping[str, Json], everywhere: tuple[type[MeshError], ...]
) -> Json:
    operation: Json = {
        "summary": route.summary,
        "operationId": _operation_id(route),
        "parameters": _parameters(route, known, components),
        "responses": {**_answers(route, known), **_problems(route, everywhere)},
    }
    if route.request is not None:
        content = {"application/json": {"schema": known[id(route.request)]}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _operation_id(route: Route) -> str:
    words = [word.strip("{}") for word in route.path.split("/") if word]
    return "_".join([route.method.lower(), *words]).replace("-", "_").replace(".", "_")


def _parameters(route: Route, known: Mapping[int, Json], components: Mapping[str, Json]) -> list[Json]:
    segments = [part for part in route.path.split("/") if part.startswith("{")]
    found: list[Json] = [
        {"name": part.strip("{}"), "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for part in segments
    ]
    if route.query is not None:
        schema = known[id(route.query)]
        schema = components[schema["$ref"].rpartition("/")[2]]
        required = schema.get("required", [])
        found += [
            {"name": name, "in": "query", "required": name in required, "schema": property_schema}
            for name, property_schema in schema["properties"].items()
        ]
    found += [
        {
            "name": header.name,
            "in": "header",
            "required": header.required,
            "description": header.description,
            "schema": {"type": "string"},
        }
        for header in route.headers
    ]
    return found


def _answers(route: Route, known: Mapping[int, Json]) -> Json:
    answers = {}
    for status, meaning in {route.status: HTTPStatus(route.status).phrase, **(route.statuses or {})}.items():
        answer: Json = {"description": meaning}
        if route.response is not None:
            answer["content"] = {route.content_type: {"schema": known[id(route.response)]}}
        elif route.content_type != "application/json":
            answer["content"] = {route.content_type: {"schema": {"type": "string"}}}
        answers[str(status)] = answer
    return answers


def _problems(route: Route, everywhere: tuple[type[MeshError], ...]) -> Json:
    own = _WITH_BODY if route.request is not None else ()
    asked = (InvalidRequest,) if route.query is not None or route.headers else ()
    by_status: dict[int, dict[str, str]] = defaultdict(dict)
    for error in (*route.errors, *own, *asked, *everywhere, MeshError):
        by_status[error.status][error.code] = error.title
    return {str(status): _problem(by_status[status]) for status in sorted(by_status)}


def _problem(titles: Mapping[str, str]) -> Json:
    schema = {
        "allOf": [
            {"$ref": _REF.format(name=_PROBLEM)},
            {"properties": {"code": {"enum": sorted(titles)}}},
        ]
    }
    description = "; ".join(f"{code}: {titles[code]}" for code in sorted(titles))
    return {"description": description, "content": {PROBLEM_TYPE: {"schema": schema}}}


def _problem_schema() -> Json:
    """RFC 9457, with the members that every problem of ours has. An error's extras come beside them."""
    return {
        "type": "object",
        "required": ["type", "title", "status", "code", "retry"],
        "properties": {
            "type": {"type": "string", "pattern": f"^{TYPE_PREFIX}"},
            "title": {"type": "string"},
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": {"type": "string"},
            "instance": {"type": "string"},
            "code": {"type": "string"},
            "retry": {"enum": ["no", "same_id", "after"]},
            "retry_after_ms": {"type": "integer", "minimum": 0},
        },
    }
