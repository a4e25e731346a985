"""Contract 7: the edge relay."""

from tests.requirements import relayed
from tests.requirements.model import Fault, Requirement

_ROUTING = "tests/unit/edge/test_routing.py"
_DRILL = "tests/acceptance/test_statehub_drill.py"
_FIX = "tests/integration/test_fix_consistency.py"
_OPERATORS = "tests/integration/test_cli_statehub.py"
_PLANS = "tests/unit/cli/test_consistency.py"
_SHOWN = "tests/unit/cli/test_outbox_shown.py"

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
    Requirement(
        "R9",
        "Operators see, settle and rehearse an outage by command.",
        "contract 7",
        "proven",
        faults=(
            Fault(
                what="A dead write is not one that waits.",
                file="edge/concerns.py",
                old="COUNTED: Final = (Concern.PENDING, Concern.CONFLICTS, Concern.DEAD)",
                new="COUNTED: Final = (Concern.PENDING, Concern.CONFLICTS)",
                test=f"{_SHOWN}::test_an_outage_is_over_when_nothing_is_unsent_and_the_hub_is_there",
            ),
            Fault(
                what="A damaged outbox counts as an empty one.",
                file="edge/concerns.py",
                old='if not status["outbox_usable"]:',
                new='if not status["outbox_usable"] and status["pending"]:',
                test=f"{_OPERATORS}::test_with_a_damaged_outbox_forwarding_goes_on_queueing_stops_and_recover_saves_it",
            ),
            Fault(
                what="Without a relay replay says that it was done.",
                file="edge/desk.py",
                old="raise DependencyError(NO_RELAY)",
                new="return",
                test=f"{_OPERATORS}::test_without_a_relay_nothing_is_replayed_and_replay_says_so",
            ),
            Fault(
                what="The file is opened beside a relay that holds it.",
                file="edge/desk.py",
                old="if holder is None:",
                new="if holder != 0:",
                test=f"{_OPERATORS}::test_a_process_that_holds_the_lock_and_is_silent_is_named",
            ),
            Fault(
                what="What is decided without a relay is not written down.",
                file="edge/desk.py",
                old="log.attach(self._world.observer)  # who",
                new="log.attach(real_world().observer)  # who",
                test=f"{_OPERATORS}::test_a_write_is_given_up_or_marked_dead_and_retried_as_a_new_one",
            ),
            Fault(
                what="A key of another request is taken for a known one.",
                file="edge/stores/sqlite/outbox.py",
                old="if stands is not None and stands.fingerprint != submission.fingerprint:",
                new="if stands is not None and not stands.fingerprint:",
                test=f"{_OPERATORS}::test_an_import_is_all_or_nothing",
            ),
            Fault(
                what="Part of an import stays.",
                file="edge/operate.py",
                old="stood = await self._outbox.accept_all(submissions)",
                new="stood = [await self._outbox.accept_all([one]) for one in submissions]",
                test=f"{_OPERATORS}::test_an_import_is_all_or_nothing",
            ),
            Fault(
                what="A credential comes in by an import.",
                file="edge/operate.py",
                old="if find_secret(body) is not None or any(",
                new="if any(",
                test=f"{_OPERATORS}::test_an_import_is_all_or_nothing",
            ),
            Fault(
                what="An export overwrites what is there.",
                file="cli/statehub/outbox.py",
                old="replace=False",
                new="replace=True",
                test=f"{_OPERATORS}::test_an_export_never_overwrites_a_file",
            ),
            Fault(
                what="A queued receipt is taken for a success.",
                file="cli/statehub/fix.py",
                old='"queued": "queued",\n    "cannot"',
                new='"queued": "changed",\n    "cannot"',
                test=f"{_FIX}::test_through_a_relay_what_is_queued_is_told_as_queued_and_never_as_done",
            ),
            Fault(
                what="What the hub answered is believed without another look.",
                file="cli/statehub/fix.py",
                old='return {"matches": not wrong, **report}',
                new='return {"matches": not report["queued"], **report}',
                test=f"{_FIX}::test_what_the_hub_does_not_show_afterwards_is_not_done_whatever_it_answered",
            ),
            Fault(
                what="A row is changed over what somebody else changed.",
                file="cli/statehub/fix.py",
                old='if_match=f\'"{action.row["revision"]}"\'',
                new='if_match="*"',
                test=f"{_FIX}::test_a_row_that_somebody_changes_meanwhile_is_looked_at_again",
            ),
            Fault(
                what="What was deleted at the hub is told as created.",
                file="cli/statehub/fix.py",
                old="if standing.status == _GONE:",
                new="if standing.status == _STALE:",
                test=f"{_FIX}::test_what_was_deleted_at_the_hub_is_created_anew_and_once",
            ),
            Fault(
                what="One of several rows is taken at random.",
                file="cli/statehub/consistency.py",
                old="if len(found) > 1:",
                new="if len(found) > 2:",
                test=f"{_PLANS}::test_if_several_rows_could_be_it_none_is_touched",
            ),
            Fault(
                what="The key of a creation changes with the status.",
                file="cli/statehub/consistency.py",
                old='key=derive_key(repo, "tasks", task.id)',
                new='key=derive_key(repo, "tasks", task.id, task.status)',
                test=f"{_PLANS}::test_the_key_of_a_creation_is_of_the_repository_and_the_id_and_of_nothing_that_changes",
            ),
            Fault(
                what="The drill does not look where a credential could be.",
                file="cli/statehub/drill.py",
                old='_check(not found, f"the credential',
                new='_check(bool(paths), f"the credential',
                test=f"{_DRILL}::test_the_drill_fails_where_the_relay_or_the_hub_does_wrong",
            ),
            Fault(
                what="The drill passes whatever it found.",
                file="cli/statehub/drill.py",
                old='is_good = all(step["ok"] for step in steps)',
                new='is_good = any(step["ok"] for step in steps)',
                test=f"{_DRILL}::test_the_drill_fails_where_the_relay_or_the_hub_does_wrong",
            ),
        ),
    ),
    Requirement(
        "R10",
        "The relay is measured, and a queued write has no side effect.",
        "contract 7",
        "proven",
        faults=relayed.R10,
    ),
)
