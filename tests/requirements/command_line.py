"""The faults that prove C1 of contract 9: the four commands. Its row is in `surfaces`."""

from tests.requirements.model import Fault

_CONTRACT = "tests/unit/cli/test_contract.py"
_MAIN = "tests/unit/cli/test_main.py"

FAULTS: tuple[Fault, ...] = (
    Fault(
        what="A conflict ends as any failure does.",
        file="cli/command.py",
        old="CONFLICT: Final = 4",
        new="CONFLICT: Final = 1",
        test=f"{_MAIN}::test_a_conflict_is_4_and_its_words_can_be_read",
    ),
    Fault(
        what="With --json, wrong usage is told on standard error alone.",
        file="cli/main.py",
        old='session.as_json = session.as_json or "--json" in _options(words)',
        new="session.as_json = False",
        test=f"{_CONTRACT}::test_wrong_usage_is_2_and_with_json_a_problem",
    ),
    Fault(
        what="A mistake of our own leaves whoever reads the output without a word.",
        file="cli/main.py",
        old="    except Exception as error:",
        new="    except (MeshError, OSError, click.ClickException) as error:",
        test=f"{_CONTRACT}::test_a_mistake_of_ours_is_1_and_a_problem_too_with_its_place_on_standard_error",
    ),
    Fault(
        what="Of several meshes the first is taken.",
        file="cli/command.py",
        old="if len(joined) > 1:",
        new="if len(joined) > 9:",
        test=f"{_CONTRACT}::test_of_several_meshes_one_must_be_named",
    ),
    Fault(
        what="A command is without a schema.",
        file="cli/documents/mesh.py",
        old='    "claudemesh peer list": one(Peers),\n',
        new="",
        test="tests/docs/test_json_schemas.py::test_every_command_has_a_schema_and_every_schema_a_command",
    ),
    Fault(
        what="What callers rely on is no longer printed: a completed step does not name its receipt.",
        file="cli/ledger.py",
        old='{"receipt_id": receipt_id, "step_id": step_id, "outcome": outcome}',
        new='{"step_id": step_id, "outcome": outcome}',
        test=f"{_CONTRACT}::test_a_ledger_is_the_same_under_both_of_its_names",
    ),
    Fault(
        what="A message in the inbox need not say what it answers.",
        file="daemon/http/inbox.py",
        old="reply_to_id: str | None\n    to_session",
        new="reply_to_id: str | None = None\n    to_session",
        test="tests/docs/test_json_schemas.py::test_the_shapes_of_the_contract_are_required",
    ),
)
