"""Planted faults that belong to no requirement: they show that the tests of the inside can fail.

They run as those of `tests/requirements.py` do; see there for the fields.
"""

from tests.requirements import Fault

_FIRE = "tests/chaos/test_engine_under_fire.py"
_ENGINE = "tests/contract/engine"
_FILE = "tests/unit/storage/test_sqlite_file.py"

MUTANTS: tuple[Fault, ...] = (
    Fault(
        what="A sync that fails is taken for any other error, and the group is run again.",
        file="storage/sqlite/errors.py",
        old='getattr(error, "extendedresult", 0) in _SYNC_FAILURES',
        new="False",
        test=f"{_FIRE}::test_the_first_sync_that_fails_stops_the_process_and_is_never_tried_again",
    ),
    Fault(
        what="A checkpoint swallows the sync that failed.",
        file="storage/sqlite/writer.py",
        old="            if is_sync_failure(error):\n                raise\n\n\ndef",
        new="            del error\n\n\ndef",
        test=f"{_FIRE}::test_a_sync_that_fails_in_a_checkpoint_stops_the_process_too",
    ),
    Fault(
        what="Callers are answered before the commit.",
        file="storage/sqlite/writer.py",
        old='            points.reach("sqlite.before_commit")\n',
        new=(
            "            answer([(job.reply, outcome) for job, outcome in zip(group, outcomes, strict=True)])\n"
            '            points.reach("sqlite.before_commit")\n'
        ),
        test=f"{_FIRE}::test_a_kill_around_the_commit_loses_nothing_that_was_answered",
    ),
    Fault(
        what="A commit that failed for want of room is answered as if it had succeeded.",
        file="storage/sqlite/writer.py",
        old="            outcomes = [translate(error)]\n",
        new="            outcomes = [None]\n",
        test=f"{_FIRE}::test_a_full_disk_is_told_loses_nothing_and_is_left_behind_without_a_restart",
    ),
    Fault(
        what="A weaker sync is asked for, and nobody looks whether it took.",
        file="storage/sqlite/connection.py",
        old='"synchronous": ("full", 2)',
        new='"synchronous": ("normal", 1)',
        test=f"{_FILE}::test_every_connection_syncs_fully_and_none_but_the_writer_checkpoints",
    ),
    Fault(
        what="What was set is not read back.",
        file="storage/sqlite/connection.py",
        old="        if found != expected:\n",
        new="        if False and found != expected:\n",
        test=f"{_FILE}::test_a_setting_that_did_not_take_refuses_to_start",
    ),
    Fault(
        what="A group that broke is given up as a whole instead of being run one by one.",
        file="storage/sqlite/writer.py",
        old=(
            "            if len(group) > 1:\n"
            "                for job in group:\n"
            "                    self._commit([job])\n"
            "                return\n            outcomes = [translate(error)]\n"
        ),
        new="            outcomes = [translate(error)] * len(group)\n",
        test=f"{_ENGINE}/test_engine_contract.py::test_one_that_breaks_takes_none_of_its_neighbours_with_it",
    ),
    Fault(
        what="A member that broke is passed over, and what it wrote is committed with its neighbours.",
        file="storage/sqlite/writer.py",
        old='                connection.execute("ROLLBACK")\n            raise\n        points',
        new='                connection.execute("COMMIT")\n            raise\n        points',
        test=f"{_ENGINE}/test_engine_contract.py::test_one_that_breaks_takes_none_of_its_neighbours_with_it",
    ),
    Fault(
        what="Every job has a commit of its own.",
        file="storage/sqlite/writer.py",
        old="            if len(group) == self._group_max:\n",
        new="            if len(group) == 1:\n",
        test=f"{_ENGINE}/test_sqlite_engine.py::test_accepts_claims_and_settles_that_wait_share_one_commit",
    ),
    Fault(
        what="Members of a group are sorted by operation, which loses their order.",
        file="storage/sqlite/writer.py",
        old="groupby(group, key=lambda job: job.operation)",
        new="groupby(sorted(group, key=lambda job: job.operation.__name__), key=lambda job: job.operation)",
        test=f"{_ENGINE}/test_engine_contract.py::test_different_operations_of_one_group_see_each_other_in_order",
    ),
    Fault(
        what="A reader takes no transaction, and so sees a moment that changes.",
        file="storage/sqlite/readers.py",
        old='            connection.execute("BEGIN")\n',
        new="",
        test=f"{_ENGINE}/test_sqlite_engine.py::test_a_query_sees_one_moment_however_long_it_takes",
    ),
    Fault(
        what="Closing drops what waits.",
        file="storage/sqlite/writer.py",
        old="                return group, True\n        return group, False",
        new="                return group, True\n        return [], False",
        test=f"{_ENGINE}/test_sqlite_engine.py::test_closing_finishes_what_was_submitted",
    ),
    Fault(
        what="The WAL is never moved into the file.",
        file="storage/sqlite/writer.py",
        old="        if self._wal_pages < due:\n",
        new="        if self._wal_pages < due * 10_000:\n",
        test=f"{_ENGINE}/test_sqlite_engine.py::test_the_wal_does_not_grow_without_bound",
    ),
    Fault(
        what="A migration that fails half-way is kept.",
        file="storage/sqlite/schema.py",
        old='            connection.execute("ROLLBACK")\n',
        new='            connection.execute("COMMIT")\n',
        test=f"{_FILE}::test_a_migration_that_fails_leaves_the_file_as_it_was",
    ),
    Fault(
        what="A file of a newer program is opened all the same.",
        file="storage/migrate.py",
        old="    if version > len(migrations):\n",
        new="    if version > len(migrations) + 1_000:\n",
        test=f"{_ENGINE}/test_engine_contract.py::test_a_file_of_a_newer_program_is_refused_and_left_alone",
    ),
    Fault(
        what="A zombie with an old token may still write.",
        file="kernel/lease.py",
        old="    if token != standing.token:\n",
        new="    if token > standing.token:\n",
        test="tests/property/test_kernel_laws.py::test_a_lease_has_one_owner_and_its_token_only_grows",
    ),
    Fault(
        what="A lease lives one instant too long.",
        file="kernel/lease.py",
        old="now_ms < self.expires_at_ms",
        new="now_ms <= self.expires_at_ms",
        test="tests/unit/kernel/test_lease.py::test_at_its_last_instant_a_lease_is_over",
    ),
    Fault(
        what="A retry of a dead id is told that it is queued.",
        file="kernel/outbox.py",
        old='(_S.DEAD, _SAME): (Ruling.CONFLICT, "outbox_dead_fingerprint_match")',
        new='(_S.DEAD, _SAME): (Ruling.BUSY, "queued")',
        test="tests/unit/kernel/test_outbox.py::test_an_id_that_stands_is_judged_by_the_accept_table",
    ),
    Fault(
        what="A conflict is given up as dead because 429 is a 4xx.",
        file="kernel/outbox.py",
        old="frozenset({408, 425, 429})",
        new="frozenset({408, 425})",
        test="tests/unit/kernel/test_outbox.py::test_the_brokers_answer_says_what_happened",
    ),
    Fault(
        what="A tenth of the window is computed in floating point and rounded down.",
        file="kernel/retention.py",
        old="-(-window_hours // 10)",
        new="int(mode.window_days * 0.1 * 24)",
        test="tests/unit/kernel/test_retention.py::test_a_row_is_given_up_a_margin_before_its_id_is_forgotten",
    ),
    Fault(
        what="An error of an extra's name replaces the contract's member.",
        file="wire/problem.py",
        old="return {**error.extras, **problem}",
        new="return {**problem, **error.extras}",
        test="tests/unit/wire/test_problem.py::test_an_extra_cannot_replace_what_the_contract_says",
    ),
)
