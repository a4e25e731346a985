"""The table of requirements and the tests agree, both ways; and each rule of that check can fail."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from tests.faults.collect import Collected, collect
from tests.faults.mutants import MUTANTS
from tests.requirements import REQUIREMENTS, Fault, Requirement, State

# The ids of the contract in its order: a row that is lost or slipped in by mistake shows.
SECTIONS = {
    "contract 1": "F1 F2 F2a F3 F4 F5 F6 F7 F8",
    "contract 2": "D1 D2 D3 D4 D5 D6 D7 D8 D9 D10 D11 D12 D13 D14 D15 D16 D17 D18 D19",
    "contract 3": "N1 N2 N3 N4",
    "contract 4": "B0 B1 B2 B3 B4 B5 B6 B7 B8 Q1 Q2 Q3 Q4 Q5 Q6 Q7 Q8",
    "contract 5": "P1 P2 P3 P4 P5 P6 P7 P8 P9 P10 P11 P12 P13",
    "contract 6": "L1 L2 L3 L4 L5 L6 L7 L8 L9 L10",
    "contract 7": "R1 R2 R3 R4 R5 R6 R7 R8 R9 R10",
    "contract 8": "S1 S2 S3 S4 S5 S6",
    "contract 9": "I1 I2 I3 I4 H1 C1 C2 C3 C4 C5 C6 C7 C8 O1 O2 T1",
}
CONTRACT = {id_: section for section, ids in SECTIONS.items() for id_ in ids.split()}


def problems(requirements: Sequence[Requirement], collected: Collected) -> list[str]:
    """Everything that is wrong with a table, given which test names which ids."""
    return [
        *_rows(requirements),
        *_unknown(requirements, collected),
        *(problem for row in requirements for problem in _claims(row, collected)),
    ]


def _rows(requirements: Sequence[Requirement]) -> Iterator[str]:
    ids = [row.id for row in requirements]
    yield from (f"{id_}: {count} rows" for id_, count in Counter(ids).items() if count > 1)
    given = [id_ for id_ in dict.fromkeys(ids) if id_ in CONTRACT]
    if given != [id_ for id_ in CONTRACT if id_ in given]:
        yield f"the rows are not in the contract's order: {' '.join(given)}"
    for row in requirements:
        if not row.sentence.strip() or len(row.sentence) > 110 or "\n" in row.sentence:
            yield f"{row.id}: its sentence is not one line of 1 to 110 characters"
        if row.state not in get_args(State):
            yield f"{row.id}: unknown state {row.state}"
        if CONTRACT.get(row.id) != row.source:
            yield f"{row.id}: not an id of {row.source}"


def _unknown(requirements: Sequence[Requirement], collected: Collected) -> Iterator[str]:
    known = {row.id for row in requirements}
    for node, ids in collected.items():
        yield from (f"{node} names the unknown id {id_!r}" for id_ in ids if id_ not in known)


def _claims(row: Requirement, collected: Collected) -> Iterator[str]:
    tests = [node for node, ids in collected.items() if row.id in ids]
    if row.state == "later":
        yield from (f"{row.id}: is for later, but {node} names it" for node in tests)
    if row.state != "proven":
        yield from (f"{row.id}: is {row.state}, but has the fault {fault.what!r}" for fault in row.faults)
        return
    if not tests:
        yield f"{row.id}: is proven, but no test names it"
    if not row.faults:
        yield f"{row.id}: is proven, but no fault shows that a test of it can fail"
    for fault in row.faults:
        if fault.test not in collected:
            yield f"{row.id}: there is no test {fault.test}"
        elif fault.test not in tests:
            yield f"{row.id}: {fault.test} is to catch its fault, but does not name it"


def test_every_id_of_the_contract_has_its_row() -> None:
    assert [row.id for row in REQUIREMENTS] == list(CONTRACT)


def test_the_table_and_the_tests_agree() -> None:
    collected = collect()
    assert problems(REQUIREMENTS, collected) == []
    assert [mutant.test for mutant in MUTANTS if mutant.test.partition("[")[0] not in collected] == []


# --- the rules, each shown to be able to fail ---------------------------------------------------------

FAULT = Fault("The next id is the last one.", "runtime/ids.py", "+ 1", "+ 0", "tests/a.py::test_ids_rise")
PROVEN = Requirement("F4", "Ids rise.", "contract 1", "proven", (FAULT,))
PLANNED = Requirement("F5", "Retries are spread.", "contract 1", "planned")
LATER = Requirement("I1", "Bodies are sealed.", "contract 9", "later")
TESTS = {"tests/a.py::test_ids_rise": ["F4"], "tests/a.py::test_other": []}


def test_a_sound_table_has_no_problems() -> None:
    assert problems([PROVEN, PLANNED, LATER], TESTS) == []
    assert problems([PLANNED], {"tests/a.py::test_spread": ["F5"]}) == [], "a planned id may be named already"


def test_an_id_with_two_rows_is_reported() -> None:
    assert problems([PLANNED, PLANNED], {}) == ["F5: 2 rows"]


def test_rows_out_of_order_are_reported() -> None:
    ten, nine = (replace(PLANNED, id=id_, source="contract 2") for id_ in ("D10", "D9"))
    assert problems([nine, ten], {}) == []
    assert problems([ten, nine], {}) == ["the rows are not in the contract's order: D10 D9"]


def test_a_row_that_its_source_does_not_have_is_reported() -> None:
    assert problems([replace(PLANNED, id="F99")], {}) == ["F99: not an id of contract 1"]
    assert problems([replace(PLANNED, source="contract 9")], {}) == ["F5: not an id of contract 9"]


@pytest.mark.parametrize("sentence", ["", "  ", "x" * 111, "two\nlines"])
def test_a_sentence_that_is_not_one_line_is_reported(sentence: str) -> None:
    found = problems([replace(PLANNED, sentence=sentence)], {})
    assert found == ["F5: its sentence is not one line of 1 to 110 characters"]


def test_a_state_of_another_kind_is_reported() -> None:
    assert problems([replace(PLANNED, state="done")], {}) == ["F5: unknown state done"]


def test_a_test_that_names_an_unknown_id_is_reported() -> None:
    found = problems([PLANNED], {"tests/a.py::test_x": ["F5", "X1"]})
    assert found == ["tests/a.py::test_x names the unknown id 'X1'"]


def test_a_proven_id_that_no_test_names_is_reported() -> None:
    found = problems([PROVEN], {"tests/a.py::test_ids_rise": []})
    assert "F4: is proven, but no test names it" in found


def test_a_proven_id_without_a_fault_is_reported() -> None:
    found = problems([replace(PROVEN, faults=())], TESTS)
    assert found == ["F4: is proven, but no fault shows that a test of it can fail"]


def test_a_fault_whose_test_is_gone_is_reported() -> None:
    found = problems([PROVEN], {"tests/a.py::test_renamed": ["F4"]})
    assert found == ["F4: there is no test tests/a.py::test_ids_rise"]


def test_a_fault_whose_test_names_another_id_is_reported() -> None:
    tests = {"tests/a.py::test_ids_rise": ["F5"], "tests/a.py::test_other": ["F4"]}
    found = problems([PROVEN, PLANNED], tests)
    assert found == ["F4: tests/a.py::test_ids_rise is to catch its fault, but does not name it"]


@pytest.mark.parametrize("row", [PLANNED, LATER])
def test_a_fault_of_an_id_that_is_not_proven_is_reported(row: Requirement) -> None:
    found = problems([replace(row, faults=(FAULT,))], TESTS | {FAULT.test: []})
    assert found == [f"{row.id}: is {row.state}, but has the fault 'The next id is the last one.'"]


def test_a_test_that_names_an_id_for_later_is_reported() -> None:
    found = problems([LATER], {"tests/a.py::test_sealed": ["I1"]})
    assert found == ["I1: is for later, but tests/a.py::test_sealed names it"]


# --- the collector ------------------------------------------------------------------------------------


def test_the_collector_sees_markers_of_functions_parameters_classes_and_modules(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = req(*ids)\n")
    (tmp_path / "test_marked.py").write_text(
        textwrap.dedent("""
            import pytest

            pytestmark = pytest.mark.req("F1")


            @pytest.mark.req("F4", "F3")
            @pytest.mark.parametrize("a", [1, pytest.param(2, marks=pytest.mark.req("F5"))])
            def test_function(a): ...


            @pytest.mark.req("F2")
            class TestClass:
                def test_method(self): ...


            @pytest.mark.req()
            def test_empty(): ...
        """)
    )
    (tmp_path / "test_plain.py").write_text("def test_plain(): ...\n")
    assert collect(tmp_path, ".") == {
        "test_marked.py::test_function": ["F1", "F3", "F4", "F5"],
        "test_marked.py::TestClass::test_method": ["F1", "F2"],
        "test_marked.py::test_empty": ["", "F1"],
        "test_plain.py::test_plain": [],
    }


def test_a_test_that_cannot_be_collected_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_broken.py").write_text("import nowhere\n")
    with pytest.raises(RuntimeError, match="nowhere"):
        collect(tmp_path, ".")
