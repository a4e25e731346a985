"""Which writes may wait for the upstream, and in which manner: the route policy, read from TOML.

    append       adds something of its own; may be queued
    replace      changes a row; may be queued with an expectation, behind other writes to the same row
    bulk         a list of such changes; becomes one envelope for each
    online_only  everything else: forwarded, and refused while the upstream is away

This file decides what a policy may say and which rule a request falls under. A literal path goes before a pattern.
A parameter is one whole segment, and is compared by what it means, not by how it was percent-encoded: two spellings
of one row are one row.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.resources import files
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import quote, unquote

import msgspec

from claudemesh.edge.policy import EXPECTATIONS
from claudemesh.kernel.canonical import Json
from claudemesh.kernel.errors import ConfigError, InvalidRequest

BULK_MAX: Final = 500

_PARAMETER = re.compile(r"\{([a-z][a-z0-9_]*)\}")
_PATH = re.compile(r"(?:/(?:[A-Za-z0-9_.~-]+|\{[a-z][a-z0-9_]*\}))*/?")
_ENTITY = re.compile(r"[A-Za-z0-9_-]+/\{[a-z][a-z0-9_]*\}")


class RouteClass(StrEnum):
    APPEND = "append"
    REPLACE = "replace"
    BULK = "bulk"
    ONLINE_ONLY = "online_only"


@dataclass(frozen=True, slots=True)
class Each:
    """What becomes of the entries of a bulk."""

    list: str  # the field of the body that holds them
    id: str  # the field of an entry that names its row
    becomes: str  # the route that it is a write to, "PATCH /tasks/{id}"
    answers: str = "answer"  # the field under which the upstream's answer to the bulk tells that of an entry


@dataclass(frozen=True, slots=True)
class Rule:
    method: str
    path: str  # "/tasks/{id}"
    route_class: RouteClass
    entity: str | None = None  # "tasks/{id}": writes to one entity keep their order
    supersedes: tuple[
        str, ...
    ] = ()  # a body of only these fields, and expectations, makes earlier such ones needless
    strip: tuple[str, ...] = ()  # fields that are always taken out, "details.password" for one further down
    read: str | None = None  # the path that shows the entity
    each: Each | None = None
    example: str | None = None  # a body, for the documentation

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    def is_superseding(self, body: Json) -> bool:
        """Tell whether the body is a status write: it sets nothing but what the next such write sets again."""
        if not self.supersedes or not isinstance(body, dict):
            return False
        rest = body.keys() - set(EXPECTATIONS)
        return bool(rest) and rest <= set(self.supersedes)


class Routed(NamedTuple):
    rule: Rule | None  # None: no rule, so online-only
    route_class: RouteClass
    params: Mapping[str, str]  # decoded
    entity: str | None


class Part(NamedTuple):
    """One entry of a bulk, as the write that it is."""

    routed: Routed
    path: str
    body: dict[str, Json]


_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_UNKNOWN: Final = Routed(None, RouteClass.ONLINE_ONLY, _NOTHING, None)


@dataclass(frozen=True)
class Policy:
    name: str
    rules: tuple[Rule, ...]
    reads: tuple[str, ...] = ()
    stale_reads: tuple[str, ...] = ()
    recovery: str | None = None  # the route that a recovery is reported to, "POST /progress/"
    probe: str = "/health"
    _literal: dict[tuple[str, str], Routed] = field(init=False, repr=False, compare=False)
    _patterns: dict[str, list[tuple[re.Pattern[str], Rule]]] = field(init=False, repr=False, compare=False)
    _reads: tuple[re.Pattern[str], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        literal: dict[tuple[str, str], Routed] = {}
        patterns: dict[str, list[tuple[re.Pattern[str], Rule]]] = {}
        for rule in self.rules:
            if "{" in rule.path:
                patterns.setdefault(rule.method, []).append((_compile(rule.path), rule))
            else:
                literal[rule.method, rule.path] = Routed(rule, rule.route_class, _NOTHING, None)
        object.__setattr__(self, "_literal", literal)
        object.__setattr__(self, "_patterns", patterns)
        object.__setattr__(self, "_reads", tuple(map(_compile, self.reads)))

    def classify(self, method: str, path: str) -> Routed:
        """Return the rule of a request, by its path as it was sent."""
        found = self._literal.get((method, path))
        return found if found is not None else self._match(method, path)

    def _match(self, method: str, path: str) -> Routed:
        for pattern, rule in self._patterns.get(method, ()):
            if match := pattern.fullmatch(path):
                params = _decoded(match)
                entity = rule.entity and _fill(rule.entity, params)
                return Routed(rule, rule.route_class, params, entity)
        return _UNKNOWN

    def entity_of(self, path: str) -> str | None:
        """Return the entity that a path speaks of, whatever the method: the row that a rule's writes are to."""
        for rules in self._patterns.values():
            for pattern, rule in rules:
                if rule.entity is not None and (match := pattern.fullmatch(path)):
                    return _fill(rule.entity, _decoded(match))
        return None

    def is_read(self, path: str) -> bool:
        """Tell whether a GET of this path is one of those that are passed on."""
        return any(pattern.fullmatch(path) for pattern in self._reads)

    def is_stale_read(self, path: str) -> bool:
        """Tell whether this may be shown as it was, while the upstream is away."""
        return path in self.stale_reads

    def split(self, rule: Rule, body: Json) -> tuple[Part, ...]:
        """Return the writes that a bulk is made of, or refuse one that is not made of any."""
        each = rule.each
        if each is None:
            raise ValueError(f"{rule.name} is no bulk")
        entries = body.get(each.list) if isinstance(body, dict) else None
        if not isinstance(entries, list) or not 1 <= len(entries) <= BULK_MAX:
            raise InvalidRequest(f"{each.list} is a list of 1 to {BULK_MAX} entries")
        return tuple(self._part(each, entry) for entry in entries)

    def _part(self, each: Each, entry: Json) -> Part:
        name = entry.get(each.id) if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(name, str) or not name or name in {".", ".."}:
            raise InvalidRequest(f"every entry of {each.list} has a text {each.id}")
        method, _, template = each.becomes.partition(" ")
        path = _PARAMETER.sub(lambda _: quote(name, safe=""), template)
        return Part(self.classify(method, path), path, {key: entry[key] for key in entry if key != each.id})


def read_path(rule: Rule, params: Mapping[str, str]) -> str | None:
    """Return the path that shows the entity of a request, encoded as it is sent."""
    return rule.read and _PARAMETER.sub(lambda found: quote(params[found[1]], safe=""), rule.read)


def strip_fields(body: Json, names: tuple[str, ...]) -> Json:
    """Return the body without the named fields, however many of them it has; also in every entry of a list."""
    for name in names:
        body = _without(body, name.split("."))
    return body


def _without(body: Json, steps: list[str]) -> Json:
    if isinstance(body, list):
        return [_without(entry, steps) for entry in body]
    if not isinstance(body, dict) or steps[0] not in body:
        return body
    first, *rest = steps
    if not rest:
        return {key: value for key, value in body.items() if key != first}
    return {key: _without(value, rest) if key == first else value for key, value in body.items()}


def _compile(path: str) -> re.Pattern[str]:
    parts = _PARAMETER.split(path)  # text, name, text, name, …
    return re.compile(
        "".join(f"(?P<{part}>[^/]+)" if odd % 2 else re.escape(part) for odd, part in enumerate(parts))
    )


def _decoded(match: re.Match[str]) -> dict[str, str]:
    return {name: unquote(value) for name, value in match.groupdict().items()}


def _fill(template: str, params: Mapping[str, str]) -> str:
    return _PARAMETER.sub(lambda found: params[found[1]], template)


# --- reading ---------------------------------------------------------------------------------------


class _EachTable(msgspec.Struct, forbid_unknown_fields=True):
    list: str
    id: str
    becomes: str
    answers: str = "answer"


class _RouteTable(msgspec.Struct, forbid_unknown_fields=True, rename={"route_class": "class"}):
    method: Annotated[str, msgspec.Meta(pattern="^(POST|PUT|PATCH|DELETE)$")]
    path: str
    route_class: RouteClass
    entity: str | None = None
    supersedes: list[str] = []
    strip: list[str] = []
    read: str | None = None
    each: _EachTable | None = None
    example: str | None = None


class _PolicyTable(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    route: list[dict[str, Any]]
    reads: list[str] = []
    stale_reads: list[str] = []
    recovery: str | None = None
    probe: str = "/health"


def load_built_in() -> Policy:
    """Return the policy of a State Hub."""
    return load_policy(files(__package__).joinpath("routes.toml").read_text(encoding="utf-8"))


def load_policy(text: str) -> Policy:
    """Return the policy that the text says, or raise one ConfigError with every reason why it is none."""
    try:
        table = msgspec.convert(tomllib.loads(text), _PolicyTable)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"the route policy cannot be read: {error}", problems=[str(error)]) from error
    problems: list[str] = []
    rules = tuple(_rules(table.route, problems))
    problems += [problem for rule in rules for problem in _judge_rule(rule)]
    policy = Policy(
        table.name,
        rules,
        tuple(table.reads),
        tuple(table.stale_reads),
        table.recovery,
        table.probe,
    )
    problems += _judge_policy(policy)
    if problems:
        raise ConfigError(f"the route policy is not valid: {'; '.join(problems)}", problems=problems)
    return policy


def _rules(tables: list[dict[str, Any]], problems: list[str]) -> Iterator[Rule]:
    for number, table in enumerate(tables, 1):
        try:
            route = msgspec.convert(table, _RouteTable)
        except msgspec.ValidationError as error:
            problems.append(f"route {number}: {error}")
            continue
        if not _PATH.fullmatch(route.path) or len(set(_names(route.path))) != len(_names(route.path)):
            problems.append(f"route {number}: {route.path!r} is no path of plain segments and {{parameters}}")
            continue
        each = Each(**msgspec.structs.asdict(route.each)) if route.each else None
        yield Rule(
            route.method,
            route.path,
            route.route_class,
            route.entity,
            tuple(route.supersedes),
            tuple(route.strip),
            route.read,
            each,
            route.example,
        )


def _names(template: str) -> list[str]:
    return _PARAMETER.findall(template)


def _judge_rule(rule: Rule) -> Iterator[str]:
    is_replace, is_bulk = rule.route_class is RouteClass.REPLACE, rule.route_class is RouteClass.BULK
    if rule.method == "DELETE" and rule.route_class is not RouteClass.ONLINE_ONLY:
        yield f"{rule.name}: what is deleted cannot be queued"
    if is_replace and rule.entity is None:
        yield f"{rule.name}: a replace route needs an entity, which its writes wait for"
    if rule.entity is not None and not _ENTITY.fullmatch(rule.entity):
        yield f"{rule.name}: an entity is a kind and one parameter, as in tasks/{{id}}"
    if rule.supersedes and not is_replace:
        yield f"{rule.name}: only writes of a replace route supersede each other"
    if is_bulk != (rule.each is not None):
        yield f"{rule.name}: a bulk route, and no other, says with `each` what its entries are"
    for template in filter(None, (rule.entity, rule.read)):
        yield from (
            f"{rule.name}: {template} has the parameter {name}, and the path has not"
            for name in _names(template)
            if name not in _names(rule.path)
        )
    if rule.example is not None and not _is_json(rule.example):
        yield f"{rule.name}: the example is no JSON"


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _judge_policy(policy: Policy) -> Iterator[str]:
    by_name = {rule.name: rule for rule in policy.rules}
    shapes = [_PARAMETER.sub("{}", rule.name) for rule in policy.rules]
    yield from (f"{shape}: two rules" for shape in sorted({shape for shape in shapes if shapes.count(shape) > 1}))
    for rule in policy.rules:
        becomes = by_name.get(rule.each.becomes) if rule.each else None
        if rule.each and (
            becomes is None or becomes.route_class is not RouteClass.REPLACE or len(_names(becomes.path)) != 1
        ):
            yield f"{rule.name}: {rule.each.becomes} is no replace route with one parameter"
    recovery = by_name.get(policy.recovery) if policy.recovery else None
    if policy.recovery and (
        recovery is None or recovery.route_class is not RouteClass.APPEND or _names(recovery.path)
    ):
        yield f"recovery: {policy.recovery} is no append route without parameters"
    for path in (*policy.reads, policy.probe):
        if not path or not _PATH.fullmatch(path):
            yield f"{path!r} is no path of plain segments and {{parameters}}"
    yield from (f"stale_reads: {path} is none of reads" for path in policy.stale_reads if path not in policy.reads)
    yield from (
        f"stale_reads: {path} has a parameter, and only plain paths are kept"
        for path in policy.stale_reads
        if "{" in path
    )
