"""Contract 7: the edge relay."""

from tests.requirements import relayed
from tests.requirements.model import Fault, Requirement

_ROUTING = "tests/unit/edge/test_routing.py"

REQUIREMENTS: tuple[Requirement, ...] = (
    Requirement(
        "R3",
        "A policy file sorts routes: append, replace or online-only.",
        "contract 7",
        "proven",
        faults=(
            Fault(
                what="A write that no rule names may wait.",
                file="edge/routing.py",
                old="_UNKNOWN: Final = Routed(None, RouteClass.ONLINE_ONLY, _NOTHING, None)",
                new="_UNKNOWN: Final = Routed(None, RouteClass.APPEND, _NOTHING, None)",
                test=f"{_ROUTING}::test_everything_else_is_online_only",
            ),
            Fault(
                what="A path that only begins like a route is taken for it.",
                file="edge/routing.py",
                old="            if match := pattern.fullmatch(path):\n                params",
                new="            if match := pattern.match(path):\n                params",
                test=f"{_ROUTING}::test_everything_else_is_online_only",
            ),
            Fault(
                what="To resolve a decision is an append, which needs no expectation.",
                file="edge/routes.toml",
                old='path = "/decisions/{id}/resolve"\nclass = "replace"',
                new='path = "/decisions/{id}/resolve"\nclass = "append"',
                test=f"{_ROUTING}::test_the_hubs_routes_are_sorted_as_the_contract_says",
            ),
            Fault(
                what="Two spellings of one row are two rows, and their writes overtake each other.",
                file="edge/routing.py",
                old="{name: unquote(value) for name, value in match.groupdict().items()}",
                new="dict(match.groupdict())",
                test=f"{_ROUTING}::test_two_spellings_of_a_row_are_one_entity",
            ),
            Fault(
                what="A write of the status and of something else supersedes, and the something else is lost.",
                file="edge/routing.py",
                old="return bool(rest) and rest <= set(self.supersedes)",
                new="return bool(rest & set(self.supersedes))",
                test=f"{_ROUTING}::test_only_a_write_of_nothing_but_the_status_supersedes_others",
            ),
            Fault(
                what="A policy may say that what is deleted waits.",
                file="edge/routing.py",
                old='if rule.method == "DELETE" and rule.route_class is not RouteClass.ONLINE_ONLY:',
                new='if rule.method == "DELETE" and rule.route_class is None:',
                test=f"{_ROUTING}::test_a_policy_that_cannot_be_kept_is_refused_with_its_reason",
            ),
            Fault(
                what="An entry of a bulk keeps the name of its row in its body.",
                file="edge/routing.py",
                old="{key: entry[key] for key in entry if key != each.id}",
                new="dict(entry)",
                test=f"{_ROUTING}::test_a_bulk_is_one_write_for_each_of_its_tasks",
            ),
            Fault(
                what="Only the first field that is to be stripped is.",
                file="edge/routing.py",
                old='        body = _without(body, name.split("."))\n    return body',
                new='        return _without(body, name.split("."))\n    return body',
                test=f"{_ROUTING}::test_named_fields_are_stripped_wherever_they_are",
            ),
        ),
    ),
    Requirement(
        "R4",
        "The relay forwards, or queues durably and says it is queued.",
        "contract 7",
        "proven",
        faults=relayed.R4,
    ),
    Requirement(
        "R5",
        "Envelopes keep their states; a corrupt file stops queueing only.",
        "contract 7",
        "proven",
        faults=relayed.R5,
    ),
    Requirement("R6", "No secret is ever written to the relay's disk.", "contract 7", "proven", faults=relayed.R6),
    Requirement(
        "R7",
        "Replay keeps entity order; a bad envelope blocks its own only.",
        "contract 7",
        "proven",
        faults=relayed.R7,
    ),
    Requirement(
        "R8",
        "A replacing write needs an expectation; a stale one conflicts.",
        "contract 7",
        "proven",
        faults=relayed.R8,
    ),
    Requirement("R9", "Operators see, settle and rehearse an outage by command.", "contract 7", "planned"),
    Requirement(
        "R10",
        "The relay is measured, and a queued write has no side effect.",
        "contract 7",
        "proven",
        faults=relayed.R10,
    ),
)
