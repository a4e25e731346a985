"""Every requirement of the contract: its id, what it asks in one line, and how far it is.

The rule: an id is `proven` when a test through a public surface names it with `@pytest.mark.req("F4")`
*and* a planted fault, noted here beside the id, turns that very test red. `planned` is to be built or to
be proven yet (tests may name it already), `later` belongs to a later round and nothing is built for it.

A marker on a test that cannot fail for that reason is a defect, so each fault is planted for real:
`tests/faults/test_planted_faults.py` changes a copy of `src` and runs the named test against it.
`tests/docs/test_requirements.py` checks this table against the tests, both ways; `make trace` prints it.

To move an id to `proven`, set its state and give it a fault:

    Requirement(
        "F4", "ULIDs of one process only go up, ...", "contract 1", "proven",
        faults=(
            Fault(
                what="A clock that steps back takes the next ULID back with it.",
                file="kernel/ids.py",  # under src/claudemesh
                old="if fresh >> ULID_RANDOM_BITS > state.last >> ULID_RANDOM_BITS:",  # exactly once there
                new="if fresh != state.last:",
                test="tests/unit/kernel/test_ids.py::test_ids_rise_when_the_clock_steps_back",
            ),
        ),
    )
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

State: TypeAlias = Literal["proven", "planned", "later"]


@dataclass(frozen=True)
class Fault:
    """A bug that somebody could plausibly write, and the test that must notice it."""

    what: str  # one sentence on the bug
    file: str  # under src/claudemesh
    old: str  # occurs exactly once in the file
    new: str
    test: str  # pytest node id, path::function, without parameters


@dataclass(frozen=True)
class Requirement:
    id: str
    sentence: str
    source: str  # the section of the contract
    state: State
    faults: tuple[Fault, ...] = ()


REQUIREMENTS: tuple[Requirement, ...] = (
    # --- 1. The kernel -----------------------------------------------------------------------------
    Requirement("F1", "A send has one id: header, body or minted; scoped per sender.", "contract 1", "planned"),
    Requirement(
        "F2",
        "The fingerprint covers every field of a request, byte for byte.",
        "contract 1",
        "proven",
        faults=(
            Fault(
                what="The priority is left out of the fingerprint.",
                file="kernel/fingerprint.py",
                old="        request.priority,\n",
                new="        Priority.NEXT,\n",
                test="tests/unit/kernel/test_fingerprint.py::test_changing_any_field_changes_the_fingerprint",
            ),
            Fault(
                what="Names are sorted by code point instead of by UTF-16 unit.",
                file="kernel/canonical.py",
                old="sorted(members, key=_utf16_units)",
                new="sorted(members)",
                test="tests/docs/test_vectors.py::test_a_canonical_vector_holds",
            ),
            Fault(
                what="A NUL in meta passes because its escaped form does not break the framing.",
                file="kernel/fingerprint.py",
                old='if b"\\\\u0000" in form and _ESCAPED_NUL.search(form):',
                new='if b"\\0" in form:',
                test="tests/unit/kernel/test_fingerprint.py::test_a_nul_or_a_lone_surrogate_is_refused_in_every_text",
            ),
            Fault(
                what="The fast road is taken although a name beyond the surrogates sorts differently there.",
                file="kernel/canonical.py",
                old="max(names) >= _FIRST_SURROGATE",
                new="max(names) > chr(0x10FFFF)",
                test="tests/unit/kernel/test_canonical.py::test_names_sort_by_utf16_units_and_not_by_code_points",
            ),
            Fault(
                what="Mentions keep the order they came in.",
                file="kernel/fingerprint.py",
                old="[*sorted(mentions)]",
                new="[*mentions]",
                test="tests/unit/kernel/test_fingerprint.py::test_mentions_count_but_their_order_does_not",
            ),
        ),
    ),
    Requirement("F2a", "Numbers without a canonical form are refused; the id stays free.", "contract 1", "planned"),
    Requirement(
        "F3",
        "Published vectors cover each canonical branch and each profile.",
        "contract 1",
        "proven",
        faults=(
            Fault(
                what="The http_request profile forgets the query.",
                file="kernel/fingerprint.py",
                old="_digest(VERSION, method, path, query, _body_hash(body))",
                new='_digest(VERSION, method, path, "", _body_hash(body))',
                test="tests/docs/test_vectors.py::test_an_http_request_vector_holds",
            ),
            Fault(
                what="Large numbers get their exponent one place too early.",
                file="kernel/canonical.py",
                old="_PLAIN_POINT_MAX: Final = 21",
                new="_PLAIN_POINT_MAX: Final = 20",
                test="tests/docs/test_vectors.py::test_a_canonical_vector_holds",
            ),
        ),
    ),
    Requirement("F4", "ULIDs of one process only go up, even when the clock steps back.", "contract 1", "planned"),
    Requirement("F5", "Retries back off with full jitter and obey Retry-After.", "contract 1", "planned"),
    Requirement("F6", "A clock step neither extends nor kills a lease.", "contract 1", "planned"),
    Requirement("F7", "Every error is one problem+json with a stable code and retry.", "contract 1", "planned"),
    Requirement("F8", "Priority changes the alert only, never order or fate.", "contract 1", "planned"),
    # --- 2. The daemon -----------------------------------------------------------------------------
    Requirement("D1", "A send or post is answered only once its row is durable.", "contract 2", "planned"),
    Requirement("D2", "A known id answers before any check that could refuse it.", "contract 2", "planned"),
    Requirement("D3", "Accept follows the table of row state and fingerprint.", "contract 2", "planned"),
    Requirement("D4", "A 409 names its conflict and prefix and changes no row.", "contract 2", "planned"),
    Requirement("D5", "Fingerprint and payload of an outbox row are frozen at accept.", "contract 2", "planned"),
    Requirement("D6", "A used id stays used: pruning leaves a tombstone that answers.", "contract 2", "planned"),
    Requirement("D7", "The sender sorts answers rightly and keeps destination order.", "contract 2", "planned"),
    Requirement("D8", "A row past its maximum age dies and is never sent late.", "contract 2", "planned"),
    Requirement(
        "D9", "A start recovers inflight rows, names corruption, needs no broker.", "contract 2", "planned"
    ),
    Requirement("D10", "Requeue supersedes a row without making a second message.", "contract 2", "planned"),
    Requirement("D11", "Disk pressure refuses new ids in steps and loses no row.", "contract 2", "planned"),
    Requirement("D12", "Migrations only go forward; a newer file is refused.", "contract 2", "planned"),
    Requirement("D13", "Bodies, requests, streams and rates are bounded, as configured.", "contract 2", "planned"),
    Requirement("D14", "The rest of the local API is there, authenticated, documented.", "contract 2", "planned"),
    Requirement("D15", "Only the owner's processes get in; tokens never reach a log.", "contract 2", "planned"),
    Requirement("D16", "Identity and exposure follow the host; a clone is refused.", "contract 2", "planned"),
    Requirement("D17", "A batch has one outcome per entry; a bad one harms no other.", "contract 2", "planned"),
    Requirement("D18", "Files are shared sealed, bounded and path-safe.", "contract 2", "later"),
    Requirement("D19", "Gapless sender numbers reveal a silently lost WAL tail.", "contract 2", "later"),
    # --- 3. The wire -------------------------------------------------------------------------------
    Requirement("N1", "One main socket speaks the documented tagged JSON frames.", "contract 3", "planned"),
    Requirement("N2", "Features are negotiated and every parameter is validated.", "contract 3", "planned"),
    Requirement("N3", "Each way to end a connection has its close code and reaction.", "contract 3", "planned"),
    Requirement("N4", "A second connection of a key follows instance and policy.", "contract 3", "planned"),
    # --- 4. The broker -----------------------------------------------------------------------------
    Requirement("B0", "A retry is answered by the broker's own fingerprint, budget-free.", "contract 4", "planned"),
    Requirement(
        "B1", "The rate budget is atomic and idempotent; a denial stores nothing.", "contract 4", "planned"
    ),
    Requirement("B2", "The dedupe key is claimed first; a bad destination leaves no row.", "contract 4", "planned"),
    Requirement("B3", "All rows of an accepted message are in one commit, or none are.", "contract 4", "planned"),
    Requirement("B4", "History ids are gapless per mesh and in commit order.", "contract 4", "planned"),
    Requirement("B5", "Accepts share a transaction; a bad one fails alone.", "contract 4", "planned"),
    Requirement("B6", "Push, audit, index and metrics trail the commit, never lead.", "contract 4", "planned"),
    Requirement("B7", "Retention never outruns dedupe or drops an open delivery.", "contract 4", "planned"),
    Requirement("B8", "The orphan check finds any row that lost its partner.", "contract 4", "planned"),
    Requirement("Q1", "A DM reaches one daemon of its member, in order, until acked.", "contract 4", "planned"),
    Requirement("Q2", "An inbox takes each message once; only a new row fires events.", "contract 4", "planned"),
    Requirement("Q3", "Queue work is leased with a fencing token to one worker.", "contract 4", "planned"),
    Requirement("Q4", "A slow consumer costs bounded memory and rereads the store.", "contract 4", "planned"),
    Requirement("Q5", "Mass reconnects are spread by jitter and drained by pages.", "contract 4", "planned"),
    Requirement("Q6", "A receipt advances only on stored evidence, per recipient.", "contract 4", "planned"),
    Requirement("Q7", "Cursors share one form; a stale or early one is told so.", "contract 4", "planned"),
    Requirement("Q8", "Members make topics and queues; roles rule, names are unique.", "contract 4", "planned"),
    # --- 5. Presence -------------------------------------------------------------------------------
    Requirement("P1", "Any sign of life keeps a lease; a watchdog's terminate is none.", "contract 5", "planned"),
    Requirement("P2", "A join is announced only when no live lease stands.", "contract 5", "planned"),
    Requirement("P3", "A closed socket is merely offline until its lease ends.", "contract 5", "planned"),
    Requirement("P4", "A resume swaps the socket, drains in order, renews the token.", "contract 5", "planned"),
    Requirement("P5", "An ended lease is one departure; the next hello is one join.", "contract 5", "planned"),
    Requirement("P6", "A resume token opens nothing when forged, stale, used or stolen.", "contract 5", "planned"),
    Requirement("P7", "Both sides ping, and end a silent connection in time.", "contract 5", "planned"),
    Requirement("P8", "Messages to an absent peer wait and arrive once on return.", "contract 5", "planned"),
    Requirement("P9", "Leases outlive a broker; no departure is announced twice.", "contract 5", "planned"),
    Requirement("P10", "Sessions register with a fresh attestation and are reaped.", "contract 5", "planned"),
    Requirement("P11", "The peer list has one entry per member with a live lease.", "contract 5", "planned"),
    Requirement("P12", "Lease times come from the environment; six scenarios hold.", "contract 5", "planned"),
    Requirement("P13", "A full peer entry tells if a send now would be seen.", "contract 5", "planned"),
    # --- 6. The ledger -----------------------------------------------------------------------------
    Requirement("L1", "Tables, triggers and error words are those callers rely on.", "contract 6", "planned"),
    Requirement("L2", "No raw SQL breaks the ledger; a lost trigger stops writes.", "contract 6", "planned"),
    Requirement("L3", "Claims follow one order, never overlap, and raise the token.", "contract 6", "planned"),
    Requirement("L4", "A wrong completion is refused by name; a right one is atomic.", "contract 6", "planned"),
    Requirement("L5", "A post is idempotent per key; another payload conflicts.", "contract 6", "planned"),
    Requirement("L6", "Verify passes or counts the issues, and exits 0 or 1.", "contract 6", "planned"),
    Requirement("L7", "Version 2 adds requeue and renewal; upgrading is explicit.", "contract 6", "planned"),
    Requirement("L8", "The ledger only records: jobs posted, nothing executed.", "contract 6", "planned"),
    Requirement("L9", "A queue message is posted once and its receipt is the reply.", "contract 6", "planned"),
    Requirement("L10", "A hash chain and a signed head betray any rewrite.", "contract 6", "planned"),
    # --- 7. The edge relay and the hub -------------------------------------------------------------
    Requirement("R1", "The middleware runs a keyed write once and replays its answer.", "contract 7", "planned"),
    Requirement("R2", "The hub serves its resources with revisions and cursors.", "contract 7", "planned"),
    Requirement("R3", "A policy file sorts routes: append, replace or online-only.", "contract 7", "planned"),
    Requirement("R4", "The relay forwards, or queues durably and says it is queued.", "contract 7", "planned"),
    Requirement("R5", "Envelopes keep their states; a corrupt file stops queueing only.", "contract 7", "planned"),
    Requirement("R6", "No secret is ever written to the relay's disk.", "contract 7", "planned"),
    Requirement("R7", "Replay keeps entity order; a bad envelope blocks its own only.", "contract 7", "planned"),
    Requirement("R8", "A replacing write needs an expectation; a stale one conflicts.", "contract 7", "planned"),
    Requirement("R9", "Operators see, settle and rehearse an outage by command.", "contract 7", "planned"),
    Requirement("R10", "The relay is measured, and a queued write has no side effect.", "contract 7", "planned"),
    # --- 8. The data pipeline ----------------------------------------------------------------------
    Requirement("S1", "Ingest is incremental and exactly once across crashes.", "contract 8", "planned"),
    Requirement("S2", "Each job rebuilds or measures its subject from stored data.", "contract 8", "planned"),
    Requirement("S3", "The history checker proves the promise or shows violations.", "contract 8", "planned"),
    Requirement("S4", "Pipeline commands show progress and write their reports.", "contract 8", "planned"),
    Requirement("S5", "Jobs are expressions and SQL; a Python UDF is the exception.", "contract 8", "planned"),
    Requirement("S6", "The jobs also run on a cluster of several processes.", "contract 8", "planned"),
    # --- 9. Identity, hooks, lifecycle, surfaces ---------------------------------------------------
    Requirement("I1", "Messages are sealed end to end, at accept.", "contract 9", "later"),
    Requirement("I2", "Keys rotate with grace, are backed up, restored and revoked.", "contract 9", "later"),
    Requirement("I3", "Creating and redeeming are idempotent; invites work offline.", "contract 9", "planned"),
    Requirement("I4", "A member can be renamed, and the others are told.", "contract 9", "later"),
    Requirement("H1", "Hooks run bounded, redacted, scoped and audited.", "contract 9", "later"),
    Requirement("C1", "Four commands share verbs, JSON output and exit codes.", "contract 9", "planned"),
    Requirement("C2", "The SDK finds its daemon, sync or async, and has no cold path.", "contract 9", "planned"),
    Requirement("C3", "The MCP tools are few, idempotent, and tell queued from done.", "contract 9", "planned"),
    Requirement("C4", "The dashboard is live, works offline, is inert to any body.", "contract 9", "planned"),
    Requirement("C5", "Doctor names what is wrong and its remedy; top shows it live.", "contract 9", "planned"),
    Requirement("C6", "The daemon installs as a hardened service, not in CI.", "contract 9", "later"),
    Requirement("C7", "Installing into an agent host is idempotent and verifiable.", "contract 9", "planned"),
    Requirement("C8", "One host runs several meshes within a shared budget.", "contract 9", "later"),
    Requirement("O1", "Metrics carry the promised names; logs are structured.", "contract 9", "planned"),
    Requirement("O2", "Unknown settings are refused; a reload keeps the connection.", "contract 9", "planned"),
    Requirement("T1", "The threat model names attackers, defaults and its limits.", "contract 9", "planned"),
)
