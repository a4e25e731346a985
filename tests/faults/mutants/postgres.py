"""In whatever speaks to PostgreSQL."""

from tests.requirements import Fault

_BUS = "tests/contract/broker/test_postgres_bus.py"
_DELIVERIES = "tests/contract/broker/test_delivery_contract.py"
_ENGINE = "tests/contract/engine/test_postgres_engine.py"
_JOURNAL = "tests/contract/broker/test_journal_contract.py"
_LEASES = "tests/contract/broker/test_postgres_presence.py"
_NOTICES = "tests/unit/broker/test_notices.py"
_PAIR_RACES = "tests/contract/broker/test_postgres_upkeep_races.py"
_SEATS = "tests/contract/broker/test_seat_contract.py"
_SHARED = "tests/contract/broker/test_brokers_contract.py"

MUTANTS: tuple[Fault, ...] = (
    Fault(
        what="A session that comes back just when its last lease is swept is nobody's any more.",
        file="broker/stores/postgres/presence.py",
        old="        await hold_members(connection, {*members})\n",
        new="        _ = members\n",
        test=f"{_LEASES}::test_a_session_that_comes_back_while_its_last_lease_is_swept_keeps_its_key",
    ),
    Fault(
        what="A database that went back in time under a running broker is taken for the one it was.",
        file="storage/postgres/database.py",
        old="        if self._greet is not None:\n",
        new="        if self._greet is not None and not self._pool:\n",
        test="tests/chaos/test_restored_database.py::"
        "test_numbers_that_a_lost_part_of_the_past_used_are_not_given_again_and_nothing_of_it_is_delivered",
    ),
    Fault(
        what="A revoked member keeps its seats, and is delivered to by whoever did not hear of it.",
        file="broker/stores/postgres/directory.sql",
        old="WITH unseated AS (DELETE FROM mesh.seat WHERE member_id = $1)\n",
        new="",
        test=f"{_SHARED}::test_a_revoked_member_has_no_seat_at_any_broker",
    ),
    Fault(
        what="A member gets what names a session of its that is connected.",
        file="broker/stores/postgres/deliveries.sql",
        old="WHERE member_id = $1 AND disconnected_at IS NULL AND NOT presence_only\n",
        new="WHERE member_id = -$1 AND disconnected_at IS NULL AND NOT presence_only\n",
        test=f"{_SEATS}::test_a_session_gets_what_names_it_and_its_member_the_rest_and_all_once_it_is_gone",
    ),
    Fault(
        what="Attempts are counted for a connection that another took over.",
        file="broker/stores/postgres/deliveries.sql",
        old="AND $5::bigint = (\n      SELECT max(token)",
        new="AND $5::bigint IN (\n      SELECT token",
        test=f"{_DELIVERIES}::test_a_delivery_is_a_dead_letter_after_so_many_attempts",
    ),
    Fault(
        what="A broker that was itself away takes all others for dead.",
        file="broker/stores/postgres/brokers.py",
        old="may_reap = now - self._beaten_at < BROKER_LEASE_MS",
        new="may_reap = now >= self._beaten_at",
        test=f"{_SHARED}::test_a_broker_that_was_itself_silent_takes_nobody_for_dead",
    ),
    Fault(
        what="A connection that has to go keeps its seat.",
        file="broker/stores/postgres/seats.py",
        old="        if attach.displaced:\n",
        new="        if not attach.displaced:\n",
        test=f"{_SHARED}::test_a_newer_connection_at_another_broker_gets_what_waits",
    ),
    Fault(
        what="The seats of a broker that died stay.",
        file="broker/stores/postgres/brokers.sql",
        old="DELETE FROM mesh.broker AS b USING dead WHERE b.id = dead.id",
        new="UPDATE mesh.broker AS b SET expires_at = b.expires_at FROM dead WHERE b.id = dead.id",
        test=f"{_SHARED}::test_a_broker_that_does_not_beat_loses_its_seats_and_their_members_are_told",
    ),
    Fault(
        what="Two brokers judge at the same time who may be a member.",
        file="broker/stores/postgres/directory.sql",
        old=" ORDER BY id FOR NO KEY UPDATE",
        new=" ORDER BY id",
        test=f"{_PAIR_RACES}::test_an_invite_lets_in_as_many_as_it_says_also_at_two_brokers",
    ),
    Fault(
        what="A broker that is alone tells everything to nobody.",
        file="broker/stores/postgres/bus.py",
        old="        if self._others_run:\n",
        new="        if self._others_run is not None:\n",
        test=f"{_BUS}::test_a_broker_that_is_alone_tells_nobody",
    ),
    Fault(
        what="What was published just before a broker left is not told.",
        file="broker/stores/postgres/bus.py",
        old="        if self._gathered:\n",
        new="        if not self._gathered:\n",
        test=f"{_BUS}::test_what_was_published_is_still_told_when_the_bus_stops_at_that_moment",
    ),
    Fault(
        what="A notification is longer than the server takes.",
        file="broker/stores/postgres/notices.py",
        old="if size + len(part) + 1 > bytes_max:",
        new="if size > bytes_max:",
        test=f"{_NOTICES}::test_a_notification_never_is_longer_than_the_server_takes_and_none_is_lost",
    ),
    Fault(
        what="A broker that is just now taken for dead answers a hello with an error of its store's keys.",
        file="broker/stores/postgres/seats.sql",
        old=" WHERE b.id = $1 FOR KEY SHARE",
        new=" WHERE b.id = $1",
        test=f"{_PAIR_RACES}::test_a_broker_that_is_just_now_taken_for_dead_gives_no_seat_and_says_that_it_will",
    ),
    Fault(
        what="A broker that joins others tells them nothing before its first beat.",
        file="broker/stores/postgres/brokers.py",
        old="        self._others_run(await self._database.transact(self._has_others))\n",
        new="",
        test=f"{_BUS}::test_a_broker_that_joins_others_tells_them_from_its_first_moment_on",
    ),
    Fault(
        what="What could not be told is forgotten.",
        file="broker/stores/postgres/bus.py",
        old="                self._gathered.miss()\n                self._bell.set()\n",
        new="                self._bell.set()\n",
        test=f"{_BUS}::test_what_could_not_be_told_is_told_to_be_missed",
    ),
    Fault(
        what="A listener whose server is gone without a word waits for ever.",
        file="broker/stores/postgres/bus.py",
        old='await connection.fetchval(_SQL["probe"])',
        new="pass",
        test=f"{_BUS}::test_a_listener_whose_server_answers_nothing_any_more_listens_on_another_connection",
    ),
    Fault(
        what="An accept notifies in its transaction, and so all accepts commit one after the other.",
        file="broker/stores/postgres/accept.py",
        old="    await _write_rest(connection, taken)\n",
        new='    await _write_rest(connection, taken)\n    await connection.execute("NOTIFY claudemesh")\n',
        test=f"{_BUS}::test_nothing_but_the_bus_notifies_and_it_is_part_of_no_accept",
    ),
    Fault(
        what="A lock is waited for without a bound.",
        file="storage/postgres/connection.py",
        old='        "lock_timeout": str(LOCK_MS),\n',
        new="",
        test=f"{_ENGINE}::test_every_wait_at_the_server_has_an_end",
    ),
    Fault(
        what="A server that answers nothing is waited for without a bound.",
        file="storage/postgres/connection.py",
        old="CALLER_S if seconds is None else seconds",
        new="3600",
        test=f"{_ENGINE}::test_a_server_that_answers_nothing_is_unavailable_in_time",
    ),
    Fault(
        what="Whoever borrows a connection may find itself in somebody else's transaction.",
        file="storage/postgres/database.py",
        old="if self._is_closed or connection.is_in_transaction():",
        new="if self._is_closed:",
        test=f"{_ENGINE}::test_a_connection_that_comes_back_in_a_transaction_is_lent_to_nobody",
    ),
    Fault(
        what="A connection whose caller went away in the middle is lent to the next.",
        file="storage/postgres/database.py",
        old="                connection.terminate()\n                raise\n            finally:\n",
        new="                raise\n            finally:\n",
        test=f"{_ENGINE}::test_a_connection_whose_caller_went_away_in_the_middle_is_lent_to_nobody",
    ),
    Fault(
        what="Whoever met a deadlock begins again at once, and takes back what the other waits for.",
        file="storage/postgres/retrying.py",
        old="        await sleep(STEP_ASIDE_S * tries * (1 + roll()))\n",
        new="        await sleep(0)\n",
        test="tests/unit/storage/test_postgres_retrying.py::test_whoever_was_ended_steps_aside_and_longer_each_time",
    ),
    Fault(
        what="A transaction that met another is not tried again.",
        file="storage/postgres/retrying.py",
        old="TRIES: Final = 3\n",
        new="TRIES: Final = 1\n",
        test=f"{_ENGINE}::test_a_deadlock_is_tried_again",
    ),
    Fault(
        what="What one statement does to a delivery is noted in any order.",
        file="broker/stores/postgres/migrations/0001_broker.sql",
        old="FROM happened ORDER BY place;",
        new="FROM happened ORDER BY place DESC;",
        test=f"{_JOURNAL}::test_no_statement_can_forget_to_note_what_it_changes",
    ),
    Fault(
        what="What happened to a message that is kept is forgotten with age.",
        file="broker/stores/postgres/upkeep.sql",
        old="e.at < $1 AND (",
        new="e.at < $1 OR (",
        test=f"{_JOURNAL}::test_what_happened_to_a_message_that_is_kept_stays_and_what_came_after_it_too",
    ),
)
