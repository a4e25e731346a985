"""In the archive of messages: what is found in it, and what a rebuild leaves."""

from tests.requirements import Fault

_ARCHIVE = "tests/unit/pipeline/test_archive.py"

MUTANTS: tuple[Fault, ...] = (
    Fault(
        what="A quote in a word ends it, and what follows is read as an operator.",
        file="storage/sqlite/words.py",
        old=""".replace('"', '""')""",
        new="",
        test=f"{_ARCHIVE}::test_the_archive_finds_what_the_inbox_itself_finds",
    ),
    Fault(
        what="The archive cuts texts into other words than the inbox does.",
        file="pipeline/shardfile.sql",
        old="columnsize = 0)",
        new="columnsize = 0, tokenize = 'ascii')",
        test=f"{_ARCHIVE}::test_the_archive_finds_what_the_inbox_itself_finds",
    ),
    Fault(
        what="A part whose last message came within the millisecond of the cursor is passed over.",
        file="pipeline/archive.py",
        old="shard.last_received_at >= after[0]",
        new="shard.last_received_at > after[0]",
        test=f"{_ARCHIVE}::test_pages_give_every_hit_of_all_inboxes_once_in_the_order_received",
    ),
    Fault(
        what="A page shows again what another inbox received within the millisecond of the cursor.",
        file="pipeline/archive.py",
        old="-1 if source > self.source else sys.maxsize",
        new="-1",
        test=f"{_ARCHIVE}::test_pages_give_every_hit_of_all_inboxes_once_in_the_order_received",
    ),
    Fault(
        what="A reader whose files a rebuild took away gives up.",
        file="pipeline/archive.py",
        old="if read_index(directory) == shards:",
        new="if shards:",
        test=f"{_ARCHIVE}::test_a_rebuild_while_somebody_reads_is_harmless",
    ),
    Fault(
        what="A rebuild takes the old archive away before there is a new one.",
        file="pipeline/archive.py",
        old="            shards = write()\n",
        new="            (directory / INDEX).unlink(missing_ok=True)\n            shards = write()\n",
        test=f"{_ARCHIVE}::test_a_rebuild_that_is_killed_leaves_the_archive_as_it_was_and_the_next_one_tidies_up",
    ),
    Fault(
        what="A rebuild that failed leaves its files behind.",
        file="pipeline/archive.py",
        old="        finally:\n            _sweep(directory)\n",
        new="            _sweep(directory)\n        finally:\n            pass\n",
        test=f"{_ARCHIVE}::test_a_rebuild_that_fails_leaves_the_archive_as_it_was",
    ),
    Fault(
        what="Two rebuilds at once remove each other's files.",
        file="pipeline/archive.py",
        old="with InstanceLock(directory / _LOCK):",
        new="if InstanceLock(directory / _LOCK):",
        test=f"{_ARCHIVE}::test_of_two_rebuilds_at_once_one_is_refused_and_nothing_is_mixed",
    ),
    Fault(
        what="Other users may read what was written to somebody.",
        file="pipeline/shardfile.py",
        old="0o600",
        new="0o644",
        test=f"{_ARCHIVE}::test_a_rebuild_leaves_nothing_of_what_was_there_and_is_for_its_owner_only",
    ),
)
