"""In the history checker and the log that it reads: bugs that it would miss, and alarms for nothing."""

from tests.requirements import Fault

_CHECKS = "tests/unit/pipeline/test_checks.py"
_BUG = f"{_CHECKS}::test_a_bug_is_found_by_the_invariant_that_it_breaks_and_by_no_other"
_CLEAN = f"{_CHECKS}::test_a_history_that_is_as_promised_breaks_nothing"

MUTANTS: tuple[Fault, ...] = (
    Fault(
        what="A send that somebody requeued under another id is one that nobody sent.",
        file="pipeline/checks/sends.sql",
        old="AND q.is_successor = 1",
        new="AND q.is_successor = 2",
        test=_CLEAN,
    ),
    Fault(
        what="Two accepts of one id are one too few to be told of.",
        file="pipeline/checks/sends.sql",
        old="n.times > 1 + coalesce(f.times, 0)",
        new="n.times > 2 + coalesce(f.times, 0)",
        test=_BUG,
    ),
    Fault(
        what="An id that was forgotten may not be used anew.",
        file="pipeline/checks/sends.sql",
        old="n.times > 1 + coalesce(f.times, 0)",
        new="n.times > 1",
        test=_CLEAN,
    ),
    Fault(
        what="The broker may accept something else than the outbox holds.",
        file="pipeline/checks/sends.sql",
        old="WHERE q.fingerprint <> s.fingerprint",
        new="WHERE q.fingerprint IS NULL",
        test=_BUG,
    ),
    Fault(
        what="A queue's message may be without its lease.",
        file="pipeline/checks/sends.sql",
        old="FROM stored WHERE kind = 'queue'",
        new="FROM stored WHERE kind = 'none'",
        test=_BUG,
    ),
    Fault(
        what="What an inbox has swept counts as never delivered.",
        file="pipeline/checks/deliveries.sql",
        old="d.history_id >= kept.since",
        new="d.history_id >= 0",
        test=_CLEAN,
    ),
    Fault(
        what="What was given back and brought again later has been overtaken.",
        file="pipeline/checks/deliveries.sql",
        old="WHERE d.took_a_detour = 0",
        new="WHERE d.took_a_detour >= 0",
        test=_CLEAN,
    ),
    Fault(
        what="Whoever lost a lease may finish the work.",
        file="pipeline/checks/turns.sql",
        old="AND c.version > d.version",
        new="AND c.version < d.version",
        test=_BUG,
    ),
    Fault(
        what="A step of a ledger may be held by two under one token.",
        file="pipeline/checks/turns.sql",
        old="WHERE n.workers > 1",
        new="WHERE n.workers > 2",
        test=_BUG,
    ),
    Fault(
        what="Whoever holds a step again is somebody else.",
        file="pipeline/checks/turns.sql",
        old="FROM held GROUP BY store, step_id, token",
        new="FROM held GROUP BY store, step_id",
        test=_CLEAN,
    ),
    Fault(
        what="In a ledger a token may come after a later one.",
        file="pipeline/checks/turns.sql",
        old="WHERE r.before > r.token",
        new="WHERE r.before > r.token + 9",
        test=_BUG,
    ),
    Fault(
        what="A step may forget which tokens it gave.",
        file="pipeline/checks/turns.sql",
        old="WHERE n.token > s.fencing_token",
        new="WHERE s.fencing_token IS NULL",
        test=_BUG,
    ),
    Fault(
        what="Whoever lost a step to a requeue may commit it.",
        file="pipeline/checks/turns.sql",
        old="WHERE q.step_id IS NOT NULL OR s.fencing_token > r.token",
        new="WHERE s.fencing_token > r.token",
        test=_BUG,
    ),
    Fault(
        what="A step may be committed after the end of its lease.",
        file="pipeline/checks/turns.sql",
        old="OR r.at >= s.lease_expires_at",
        new="",
        test=_BUG,
    ),
    Fault(
        what="A step that was requeued once can be committed by nobody.",
        file="pipeline/checks/turns.sql",
        old="AND q.token = r.token AND q.kind = 'requeue'",
        new="AND q.kind = 'requeue'",
        test=_CLEAN,
    ),
    Fault(
        what="A step may be committed without a receipt.",
        file="pipeline/checks/turns.sql",
        old="WHERE s.status = 'COMMITTED' AND r.receipt_id IS NULL",
        new="WHERE s.status = 'LEASED' AND r.receipt_id = ''",
        test=_BUG,
    ),
    Fault(
        what="A receipt may leave its step as it is.",
        file="pipeline/checks/turns.sql",
        old="AND s.step_id = r.step_id AND s.status = 'COMMITTED'",
        new="AND s.step_id = r.step_id",
        test=_BUG,
    ),
    Fault(
        what="A step may be committed twice.",
        file="pipeline/checks/turns.sql",
        old="FROM receipted GROUP BY store, step_id HAVING count(*) > 1",
        new="FROM receipted GROUP BY store, step_id HAVING count(*) > 2",
        test=_BUG,
    ),
    Fault(
        what="A base that nobody was told of is a version that was passed over.",
        file="pipeline/checks/turns.sql",
        old="WHERE s.before > cast(s.id AS bigint)",
        new="WHERE s.before <> cast(s.id AS bigint)",
        test=_CLEAN,
    ),
    Fault(
        what="An id that stands for something else was surely not sent.",
        file="daemon/client/recording.py",
        old="_UNSURE: Final = (408, 409)",
        new="_UNSURE: Final = (408, 408)",
        test="tests/unit/sdk/test_recording.py::test_only_what_rules_out_that_anything_was_done_is_a_refusal",
    ),
    Fault(
        what="What was acknowledged after the copy began is lost.",
        file="pipeline/history.py",
        old="or line.at <= until_ms",
        new="or line.at > 0",
        test="tests/unit/pipeline/test_history.py::test_an_answer_that_came_after_the_copy_began_was_not_heard",
    ),
)
