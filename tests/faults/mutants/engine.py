"""In kernel, runtime and the SQLite engine."""

from tests.requirements import Fault

_ENGINE = "tests/contract/engine"
_FILE = "tests/unit/storage/test_sqlite_file.py"
_FIRE = "tests/chaos/test_engine_under_fire.py"
_IPC = "tests/integration/test_local_ipc.py"

MUTANTS: tuple[Fault, ...] = (
    # --- the sync guard --------------------------------------------------------------------------
    Fault(
        what="Nobody listens to SQLite's log, so a sync that fails is an error like any other.",
        file="storage/sqlite/sync_guard.py",
        old="    if code in _SYNC_FAILURES:\n",
        new="    if code in _SYNC_FAILURES and not message:\n",
        test=f"{_FIRE}::test_the_first_sync_that_fails_stops_the_process_and_is_never_tried_again",
    ),
    Fault(
        what="The guard is set up only after the file was opened and migrated.",
        file="storage/sqlite/database.py",
        old="        sync_guard.install()\n",
        new="",
        test=f"{_FIRE}::test_a_sync_that_fails_while_the_file_is_made_or_closed_stops_the_process",
    ),
    Fault(
        what="Nobody who waits is told when the process ends.",
        file="storage/sqlite/writer.py",
        old="        sync_guard.watch(self._answer_unknown)\n",
        new="",
        test=f"{_FIRE}::test_the_first_sync_that_fails_stops_the_process_and_is_never_tried_again",
    ),
    Fault(
        what="Those still in the queue are forgotten when the process ends.",
        file="storage/sqlite/writer.py",
        old="                waiting += [] if job is None else [job]\n",
        new="                del job\n",
        test=f"{_FIRE}::test_the_first_sync_that_fails_stops_the_process_and_is_never_tried_again",
    ),
    Fault(
        what="The directory is left to SQLite, which does not look whether its sync failed.",
        file="storage/sqlite/sync_guard.py",
        old="        if error.errno != errno.EINVAL:",
        new="        if error.errno == errno.EINVAL:",
        test=f"{_FIRE}::test_a_directory_that_cannot_be_synced_stops_the_process",
    ),
    Fault(
        what="The end waits until it could say why.",
        file="runtime/halt.py",
        old="            threading.Thread(target=words, daemon=True).start()\n",
        new="            words()\n",
        test=f"{_FIRE}::test_a_standard_error_that_cannot_be_written_does_not_keep_the_process_alive",
    ),
    Fault(
        what="A main thread that ends first decides the exit code.",
        file="runtime/halt.py",
        old="        atexit.register(os._exit, EXIT_STORE_FAILED)\n",
        new="",
        test=f"{_FIRE}::test_a_program_that_ends_by_itself_after_a_failed_sync_ends_as_we_say",
    ),
    # --- the writer ------------------------------------------------------------------------------
    Fault(
        what="Callers are answered before the commit.",
        file="storage/sqlite/writer.py",
        old="        calls = [(job.operation, item) for job in group for item in job.items]\n",
        new=(
            "        answer([(job.reply, job.items[0][1]) for job in group])\n"
            "        calls = [(job.operation, item) for job in group for item in job.items]\n"
        ),
        test=f"{_FIRE}::test_a_kill_around_the_commit_loses_nothing_that_was_answered",
    ),
    Fault(
        what="A refusal is answered before the commit that it rests on.",
        file="storage/sqlite/writer.py",
        old="                points.reach(BEFORE_COMMIT)\n",
        new=(
            "                for job, outcome in zip(self._group, outcomes, strict=False):\n"
            "                    if isinstance(outcome, MeshError):\n"
            "                        answer([(job.reply, outcome)])\n"
            "                points.reach(BEFORE_COMMIT)\n"
        ),
        test=f"{_ENGINE}/test_sqlite_engine.py::test_nobody_is_answered_before_the_commit_not_even_with_a_refusal",
    ),
    Fault(
        what="A write that found no room is answered as if it had succeeded.",
        file="storage/sqlite/writer.py",
        old="                return [translate(error)]\n            return [outcome",
        new="                return [None]\n            return [outcome",
        test=f"{_FIRE}::test_a_full_disk_is_told_loses_nothing_and_is_left_behind_without_a_restart",
    ),
    Fault(
        what="A checkpoint that finds no room ends the process.",
        file="storage/sqlite/writer.py",
        old="        with suppress(apsw.Error):\n            self._connection.wal_checkpoint",
        new="        with suppress(queue.Empty):\n            self._connection.wal_checkpoint",
        test=f"{_FIRE}::test_a_disk_that_is_full_for_checkpoints_alone_stops_nobody",
    ),
    Fault(
        what="A group that broke is given up as a whole instead of being run one by one.",
        file="storage/sqlite/writer.py",
        old="            return [outcome for call in calls for outcome in self._transact([call])]\n",
        new="            return [translate(error) for _ in calls]\n",
        test=f"{_ENGINE}/test_engine_contract.py::test_one_that_breaks_takes_none_of_its_neighbours_with_it",
    ),
    Fault(
        what="Every job has a commit of its own.",
        file="storage/sqlite/writer.py",
        old="            if items >= self._group_max:\n",
        new="            if items >= 1:\n",
        test=f"{_ENGINE}/test_sqlite_engine.py::test_accepts_claims_and_settles_that_wait_share_one_commit",
    ),
    Fault(
        what="A group takes one item more than its limit.",
        file="storage/sqlite/writer.py",
        old="            if items >= self._group_max:\n",
        new="            if items > self._group_max:\n",
        test=f"{_ENGINE}/test_sqlite_engine.py::test_a_group_never_holds_more_items_than_its_limit",
    ),
    Fault(
        what="Members of a group are sorted by operation, which loses their order.",
        file="storage/sqlite/writer.py",
        old="groupby(calls, key=itemgetter(0))",
        new="groupby(sorted(calls, key=lambda call: call[0].__name__), key=itemgetter(0))",
        test=f"{_ENGINE}/test_engine_contract.py::test_different_operations_of_one_group_see_each_other_in_order",
    ),
    Fault(
        what="Closing drops what waits.",
        file="storage/sqlite/writer.py",
        old="                return True\n        return False",
        new="                return True\n        self._group = []\n        return False",
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
        what="While readers overlap the WAL is never begun anew.",
        file="storage/sqlite/writer.py",
        old="            elif self._wal_pages >= self._restart_at_pages:\n",
        new="            elif self._wal_pages >= self._restart_at_pages * 10_000:\n",
        test=f"{_ENGINE}/test_sqlite_engine.py::test_the_wal_does_not_grow_without_bound_while_readers_overlap",
    ),
    Fault(
        what="Readers are waited for in one long try.",
        file="storage/sqlite/writer.py",
        old="RESTART_TRIES: Final = 10\nRESTART_TRY_MS: Final = 50\n",
        new="RESTART_TRIES: Final = 1\nRESTART_TRY_MS: Final = 500\n",
        test=f"{_ENGINE}/test_sqlite_engine.py"
        "::test_readers_that_take_over_each_others_mark_do_not_keep_the_wal_from_beginning_anew",
    ),
    Fault(
        what="An answer that cannot be delivered takes the others of its loop with it.",
        file="storage/sqlite/replies.py",
        old="isinstance(error, Exception) and not isinstance(error, StopIteration)",
        new="isinstance(error, Exception)",
        test=f"{_ENGINE}/test_sqlite_engine.py::"
        "test_whatever_an_operation_raises_reaches_its_caller_and_stops_nobody",
    ),
    Fault(
        what="The frames of an operation that broke are kept, and with them its open cursor.",
        file="storage/sqlite/writer.py",
        old="            traceback.clear_frames(error.__traceback__)",
        new="            traceback.format_exception(error)",
        test=f"{_ENGINE}/test_sqlite_engine.py::test_a_cursor_that_a_broken_operation_left_open_blocks_nobody",
    ),
    Fault(
        what="A batch is looked at again after its caller changed it.",
        file="storage/sqlite/database.py",
        old="Job(operation, tuple(items), LoopReply",
        new="Job(operation, items, LoopReply",
        test=f"{_ENGINE}/test_sqlite_engine.py::test_a_batch_is_what_it_was_when_it_was_handed_over",
    ),
    Fault(
        what="A query that fails ends its thread, and leaves its caller waiting.",
        file="storage/sqlite/readers.py",
        old="            except BaseException as error:",
        new="            except MemoryError as error:",
        test=f"{_ENGINE}/test_sqlite_engine.py::test_a_query_that_raises_stop_iteration_is_answered_too",
    ),
    # --- transactions, connections, files --------------------------------------------------------
    Fault(
        what="A member that broke is passed over, and what it wrote is committed with its neighbours.",
        file="storage/sqlite/transactions.py",
        old='            self._connection.execute("ROLLBACK")\n',
        new='            self._may_commit = True\n            self._connection.execute("COMMIT")\n',
        test=f"{_ENGINE}/test_engine_contract.py::test_one_that_breaks_takes_none_of_its_neighbours_with_it",
    ),
    Fault(
        what="The lock is taken only when the first write comes.",
        file="storage/sqlite/transactions.py",
        old='f"BEGIN {mode}"',
        new='"BEGIN"',
        test=f"{_ENGINE}/test_sqlite_engine.py::test_the_file_is_locked_before_an_operation_looks",
    ),
    Fault(
        what="Whatever is inside may commit.",
        file="storage/sqlite/transactions.py",
        old="        return not self._may_commit\n",
        new="        return False\n",
        test=f"{_ENGINE}/test_sqlite_engine.py::"
        "test_an_operation_that_breaks_the_rules_is_found_out_and_leaves_nothing",
    ),
    Fault(
        what="A rollback inside goes unnoticed.",
        file="storage/sqlite/transactions.py",
        old="        self._was_rolled_back = True\n",
        new="        self._was_rolled_back = False\n",
        test=f"{_ENGINE}/test_sqlite_engine.py::"
        "test_an_operation_that_breaks_the_rules_is_found_out_and_leaves_nothing",
    ),
    Fault(
        what="A reader takes no transaction, and so sees a moment that changes.",
        file="storage/sqlite/readers.py",
        old='    connection.execute("BEGIN")\n',
        new="",
        test=f"{_ENGINE}/test_sqlite_engine.py::test_a_query_sees_one_moment_however_long_it_takes",
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
        new="        if found is None:\n",
        test=f"{_FILE}::test_a_setting_that_did_not_take_refuses_to_start",
    ),
    Fault(
        what="A WAL whose file is gone is overwritten.",
        file="storage/sqlite/file.py",
        old="    if _size(path) == 0 and _size(wal) > WAL_HEADER_BYTES:\n",
        new="    if _size(path) < 0 and _size(wal) > WAL_HEADER_BYTES:\n",
        test=f"{_FILE}::test_a_file_that_is_gone_from_beside_its_wal_is_refused_and_the_wal_is_kept",
    ),
    Fault(
        what="A foreign file is converted before anybody looks whose it is.",
        file="storage/sqlite/database.py",
        old="                check_owner(connection, schema)  # before",
        new="                # before",
        test=f"{_FILE}::test_a_file_of_another_program_is_refused_and_not_touched",
    ),
    Fault(
        what="Tables are rebuilt with foreign keys on, which deletes the rows that refer to them.",
        file="storage/sqlite/schema.py",
        old='    connection.pragma("foreign_keys", 0)\n',
        new='    connection.pragma("foreign_keys", 1)\n',
        test=f"{_FILE}::test_rebuilding_a_table_keeps_the_rows_that_refer_to_it",
    ),
    Fault(
        what="Rows that refer to nothing are left behind.",
        file="storage/sqlite/schema.py",
        old="    if broken:\n",
        new="    if len(broken) > 1_000:\n",
        test=f"{_FILE}::test_a_migration_that_leaves_rows_without_their_parent_is_refused",
    ),
    Fault(
        what="A migration stops at the first statement that returns a row.",
        file="storage/sqlite/schema.py",
        old="migration.sql).fetchall()",
        new="migration.sql)",
        test=f"{_FILE}::test_a_migration_runs_to_its_end_also_behind_a_statement_that_returns_rows",
    ),
    # --- kernel and runtime ---------------------------------------------------------------------
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
        what="A tenth of the window is computed in floating point and rounded down.",
        file="kernel/retention.py",
        old="-(-window_hours // 10)",
        new="int(mode.window_days * 0.1 * 24)",
        test="tests/unit/kernel/test_retention.py::test_a_row_is_given_up_a_margin_before_its_id_is_forgotten",
    ),
    Fault(
        what="Two threads may step from the same id.",
        file="runtime/ids.py",
        old="        with self._lock:\n",
        new="        with threading.Lock():\n",
        test="tests/unit/runtime/test_ids.py::test_two_threads_never_step_from_the_same_id",
    ),
    Fault(
        what="A symlink may stand in for a private file.",
        file="runtime/home.py",
        old="os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK",
        new="os.O_RDONLY | os.O_NONBLOCK",
        test=f"{_IPC}::test_attack_15_a_token_file_that_is_not_private_refuses_to_start",
    ),
    Fault(
        what="A look at a file that lost its content destroys its log.",
        file="storage/sqlite/inspect.py",
        old="    refuse_an_orphaned_wal(path)\n",
        new="",
        test="tests/unit/cli/doctor/test_stores.py::test_a_look_at_a_file_that_lost_its_content_leaves_its_log",
    ),
)
