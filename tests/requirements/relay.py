"""Contract 7: the edge relay and the hub."""

from tests.requirements.model import Fault, Requirement

_FIRE = "tests/chaos/test_idempotency_under_fire.py"
_FOREIGN = "tests/integration/test_idempotency_foreign_apps.py"
_KEYS = "tests/contract/idempotency/test_keys_contract.py"
_MIDDLEWARE = "tests/unit/idempotency/test_middleware.py"
_RECORDING = "tests/unit/idempotency/test_recording.py"
_SQLITE_KEYS = "tests/contract/idempotency/test_sqlite_keys.py"

REQUIREMENTS: tuple[Requirement, ...] = (
    Requirement(
        "R1",
        "The middleware runs a keyed write once and replays its answer.",
        "contract 7",
        "proven",
        faults=(
            Fault(
                what="A dead worker's mark stands for ever.",
                file="kernel/idempotency.py",
                old="return FRESH if isinstance(verdict, Busy) and not is_live else verdict",
                new="return verdict",
                test=f"{_FIRE}::test_the_key_of_a_worker_that_was_killed_frees_itself_and_the_retry_runs",
            ),
            Fault(
                what="A mark that is renewed is taken over as if its worker had died.",
                file="kernel/idempotency.py",
                old="return FRESH if isinstance(verdict, Busy) and not is_live else verdict",
                new="return FRESH if isinstance(verdict, Busy) else verdict",
                test=f"{_KEYS}::test_of_many_who_ask_at_once_exactly_one_begins",
            ),
            Fault(
                what="A conflict is kept, and a client that mended it is told of it for ever.",
                file="kernel/idempotency.py",
                old="(401, 403, 408, 409, 412, 425, 429)",
                new="(401, 403, 408, 412, 425, 429)",
                test=f"{_FOREIGN}::test_what_may_pass_is_not_kept",
            ),
            Fault(
                what="An answer of 5xx is kept.",
                file="kernel/idempotency.py",
                old="(400 <= status < 500 and",
                new="(400 <= status < 600 and",
                test=f"{_RECORDING}::test_what_says_nothing_final_is_not_kept_and_the_next_request_runs",
            ),
            Fault(
                what="A worker that was overtaken still settles the key, in SQLite.",
                file="idempotency/stores/sqlite/keys.sql",
                old="body = ?8\nWHERE caller = ?1 AND key = ?2 AND owner = ?3 AND token = ?4",
                new="body = ?8\nWHERE caller = ?1 AND key = ?2 AND (owner = ?3 OR token > ?4)",
                test=f"{_KEYS}::test_a_worker_whose_mark_was_taken_over_writes_nothing",
            ),
            Fault(
                what="A worker that was overtaken still settles the key, in PostgreSQL.",
                file="idempotency/stores/postgres/keys.sql",
                old="body = $8\nWHERE caller = $1 AND key = $2 AND owner = $3 AND token = $4",
                new="body = $8\nWHERE caller = $1 AND key = $2 AND (owner = $3 OR token > $4)",
                test=f"{_KEYS}::test_a_worker_whose_mark_was_taken_over_writes_nothing",
            ),
            Fault(
                what="A lost mark is not told to the write, which then is there twice.",
                file="idempotency/stores/sqlite/__init__.py",
                old='if not _run(connection, "settle", (*claim, *_render(settlement))):',
                new='if _run(connection, "settle", (*claim, *_render(settlement))) < 0:',
                test=f"{_FIRE}::test_a_worker_that_was_stopped_past_its_lease_cannot_write_any_more",
            ),
            Fault(
                what="The key is settled beside the transaction of the write.",
                file="idempotency/stores/postgres/__init__.py",
                old='if not await connection.fetch(self._sql["settle"]',
                new='if not await self._database.fetch(self._sql["settle"]',
                test=f"{_KEYS}::test_a_write_that_rolls_back_takes_its_answer_with_it",
            ),
            Fault(
                what="A mark of before a reboot is judged by the clock of after it.",
                file="idempotency/stores/sqlite/__init__.py",
                old="until if boot == self._boot else 0",
                new="until",
                test=f"{_SQLITE_KEYS}::test_a_mark_from_before_the_machine_was_started_is_over",
            ),
            Fault(
                what="A live worker does not renew its mark.",
                file="idempotency/middleware.py",
                old="await store.renew(mark.claim, self._lease_ms)",
                new="pass",
                test=f"{_FIRE}::test_a_worker_that_lives_keeps_its_key_however_long_it_takes",
            ),
            Fault(
                what="All callers share their keys.",
                file="idempotency/middleware.py",
                old='sha256(b"\\0".join(credentials)).hexdigest() if credentials else ""',
                new='""',
                test=f"{_FOREIGN}::test_two_callers_do_not_share_their_keys",
            ),
            Fault(
                what="The caller's credential is stored as it is.",
                file="idempotency/middleware.py",
                old='sha256(b"\\0".join(credentials)).hexdigest()',
                new='b" ".join(credentials).decode("latin-1")',
                test=f"{_FOREIGN}::test_no_secret_reaches_a_file_of_the_store",
            ),
            Fault(
                what="The query is no part of the request.",
                file="idempotency/middleware.py",
                old='scope["path"], query, body)',
                new='scope["path"], "", body)',
                test=f"{_FOREIGN}::test_another_write_under_the_same_key_is_a_conflict",
            ),
            Fault(
                what="An app that raises leaves its key taken.",
                file="idempotency/middleware.py",
                old="                await recorder.abandon()\n            raise",
                new="                pass\n            raise",
                test=f"{_RECORDING}::test_an_app_that_raises_frees_its_key_and_the_error_goes_on",
            ),
            Fault(
                what="An app that was cancelled frees its key, though nobody knows how far it came.",
                file="idempotency/middleware.py",
                old="        except Exception:\n            if not",
                new="        except BaseException:\n            if not",
                test=f"{_MIDDLEWARE}::test_a_dead_workers_mark_frees_itself",
            ),
            Fault(
                what="An answer is sent before it is recorded.",
                file="idempotency/recording.py",
                old="        await self._record()\n        if self._mark.is_lost and",
                new="        await self._flush()\n        await self._record()\n        if self._mark.is_lost and",
                test=f"{_RECORDING}::test_an_answer_in_one_piece_is_recorded_before_a_byte_of_it_is_sent",
            ),
            Fault(
                what="An app is told that its client is gone, and stops with its write done.",
                file="idempotency/recording.py",
                old="                await asyncio.wait_for(self._may_know.wait(), GONE_PATIENCE_S)",
                new="                pass",
                test=f"{_RECORDING}::test_a_client_that_goes_away_finds_its_answer_when_it_is_back",
            ),
            Fault(
                what="The first caller's cookie is kept and given to whoever asks again.",
                file="idempotency/policy.py",
                old='{b"content-type", ',
                new='{b"set-cookie", b"content-type", ',
                test=f"{_RECORDING}::test_a_cookie_is_the_first_callers_and_nobody_elses",
            ),
            Fault(
                what="Answers are stored whatever they hold.",
                file="idempotency/policy.py",
                old="return find_secret(orjson.loads(body)) is not None",
                new="return False",
                test=f"{_FOREIGN}::test_no_secret_reaches_a_file_of_the_store",
            ),
            Fault(
                what="Keys are promised for longer than they are kept.",
                file="idempotency/middleware.py",
                old="expires_at=latest_ms + self._expiry_ms",
                new="expires_at=latest_ms + self._expiry_ms // 2",
                test=f"{_MIDDLEWARE}::test_keys_are_kept_for_as_long_as_the_policy_says",
            ),
        ),
    ),
    Requirement("R2", "The hub serves its resources with revisions and cursors.", "contract 7", "planned"),
    Requirement("R3", "A policy file sorts routes: append, replace or online-only.", "contract 7", "planned"),
    Requirement("R4", "The relay forwards, or queues durably and says it is queued.", "contract 7", "planned"),
    Requirement("R5", "Envelopes keep their states; a corrupt file stops queueing only.", "contract 7", "planned"),
    Requirement("R6", "No secret is ever written to the relay's disk.", "contract 7", "planned"),
    Requirement("R7", "Replay keeps entity order; a bad envelope blocks its own only.", "contract 7", "planned"),
    Requirement("R8", "A replacing write needs an expectation; a stale one conflicts.", "contract 7", "planned"),
    Requirement("R9", "Operators see, settle and rehearse an outage by command.", "contract 7", "planned"),
    Requirement("R10", "The relay is measured, and a queued write has no side effect.", "contract 7", "planned"),
)
