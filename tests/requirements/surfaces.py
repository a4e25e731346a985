"""Contract 9: identity, hooks, lifecycle, surfaces."""

from tests.requirements import agents, command_line, dashboard, host, observed, terminal, threats
from tests.requirements.model import Fault, Requirement

_ANSWERS = "tests/acceptance/test_accept_promises.py"
_BROKER_HTTP = "tests/integration/test_broker_http.py"

REQUIREMENTS: tuple[Requirement, ...] = (
    Requirement("I1", "Messages are sealed end to end, at accept.", "contract 9", "later"),
    Requirement("I2", "Keys rotate with grace, are backed up, restored and revoked.", "contract 9", "later"),
    Requirement(
        "I3",
        "Creating and redeeming are idempotent; invites work offline.",
        "contract 9",
        "proven",
        faults=(
            Fault(
                what="A mesh that is asked for again is refused.",
                file="broker/stores/sqlite/directory.py",
                old="else (standing, member)",
                new="else NameTaken()",
                test=f"{_BROKER_HTTP}::test_a_mesh_is_made_once_however_often_it_is_asked_for",
            ),
            Fault(
                what="An invite is never used up.",
                file="broker/policy.py",
                old="if uses_left <= 0:",
                new="if uses_left < 0:",
                test=f"{_BROKER_HTTP}::test_an_invite_lets_its_newcomers_in_and_nobody_else",
            ),
            Fault(
                what="Every member may invite.",
                file="broker/policy.py",
                old="if inviter is None or judge_manager(inviter) is not None:",
                new="if inviter is None:",
                test=f"{_BROKER_HTTP}::test_an_invite_lets_its_newcomers_in_and_nobody_else",
            ),
            Fault(
                what="Any admin token makes meshes.",
                file="broker/http.py",
                old="if admin.identify(presented.strip().encode()) is None:",
                new="if not presented.strip():",
                test=f"{_BROKER_HTTP}::test_with_an_admin_token_only_its_holder_makes_meshes",
            ),
            Fault(
                what="Whoever reaches a broker from elsewhere makes meshes on it.",
                file="broker/app.py",
                old="if is_reached and settings.admin_token_file is None:",
                new="if not address.host:",
                test=f"{_BROKER_HTTP}::test_beyond_this_machine_a_broker_needs_an_admin_token",
            ),
        ),
    ),
    Requirement("I4", "A member can be renamed, and the others are told.", "contract 9", "later"),
    Requirement("H1", "Hooks run bounded, redacted, scoped and audited.", "contract 9", "later"),
    Requirement(
        "C1",
        "Four commands share verbs, JSON output and exit codes.",
        "contract 9",
        "proven",
        faults=command_line.FAULTS,
    ),
    Requirement(
        "C2",
        "The SDK finds its daemon, sync or async, and has no cold path.",
        "contract 9",
        "proven",
        faults=(
            Fault(
                what="Of several meshes the first is taken.",
                file="sdk/find.py",
                old="if asked is None and len(joined) == 1:",
                new="if asked is None and joined:",
                test="tests/unit/sdk/test_find.py::test_of_several_meshes_none_is_guessed_and_the_error_names_them",
            ),
            Fault(
                what="A send without a daemon waits for one until its time is up, and names no command.",
                file="daemon/client/connection.py",
                old="is not there: {self._how_to_start()}",
                new="is not there",
                test="tests/unit/sdk/test_find.py::test_without_a_daemon_every_use_is_an_error_that_names_the_command",
            ),
            Fault(
                what="A mesh in memory leaves its folder behind.",
                file="sdk/memory.py",
                old='Path(stack.enter_context(TemporaryDirectory(prefix="claudemesh-")))',
                new='Path(__import__("tempfile").mkdtemp(prefix="claudemesh-"))',
                test="tests/integration/test_sdk_in_memory.py::test_nothing_is_left_of_a_mesh_that_is_over",
            ),
        ),
    ),
    Requirement(
        "C3",
        "The MCP tools are few, idempotent, and tell queued from done.",
        "contract 9",
        "proven",
        faults=agents.FAULTS,
    ),
    Requirement(
        "C4",
        "The dashboard is live, works offline, is inert to any body.",
        "contract 9",
        "proven",
        faults=dashboard.FAULTS,
    ),
    Requirement(
        "C5",
        "Doctor names what is wrong and its remedy; top shows it live.",
        "contract 9",
        "proven",
        faults=terminal.FAULTS,
    ),
    Requirement("C6", "The daemon installs as a hardened service, not in CI.", "contract 9", "later"),
    Requirement(
        "C7",
        "Installing into an agent host is idempotent and verifiable.",
        "contract 9",
        "proven",
        faults=host.FAULTS,
    ),
    Requirement("C8", "One host runs several meshes within a shared budget.", "contract 9", "later"),
    Requirement(
        "O1",
        "Metrics carry the promised names; logs are structured.",
        "contract 9",
        "proven",
        faults=observed.FAULTS,
    ),
    Requirement(
        "O2",
        "Unknown settings are refused; a reload keeps the connection.",
        "contract 9",
        "proven",
        faults=(
            Fault(
                what="A setting that nobody knows is passed over.",
                file="runtime/settings.py",
                old="for key in table if key not in part.fields]",
                new="for key in table if not key]",
                test=f"{_ANSWERS}::test_a_reload_keeps_the_connection_and_refuses_what_it_does_not_know",
            ),
            Fault(
                what="A reload begins the connection anew.",
                file="daemon/http/manage.py",
                old="        await parts.pressure.look()\n",
                new=(
                    "        await parts.pressure.look()\n"
                    "        if parts.connector.link is not None:\n"
                    "            await parts.connector.link.close()\n"
                ),
                test=f"{_ANSWERS}::test_a_reload_keeps_the_connection_and_refuses_what_it_does_not_know",
            ),
            Fault(
                what="A setting may go without a word on what it is for.",
                file="runtime/settings.py",
                old="        if not meaning:\n",
                new="        if meaning is None:\n",
                test="tests/unit/runtime/test_settings.py::test_a_setting_that_does_not_say_what_it_is_for_is_a_mistake",
            ),
            Fault(
                what="A value of the environment is shown as the file's.",
                file="runtime/settings.py",
                old='return Found(value, Source("environment", variable))',
                new='return Found(value, Source("file", str(inputs.path)))',
                test="tests/unit/cli/test_config.py::test_each_value_in_force_is_shown_with_its_source",
            ),
            Fault(
                what="Keys of resume tokens are shown.",
                file="cli/settings_files.py",
                old="if setting.is_secret and value is not None:",
                new="if setting.is_secret and value is None:",
                test="tests/unit/cli/test_config.py::test_no_secret_is_shown",
            ),
            Fault(
                what="A password ends at its first @.",
                file="cli/settings_files.py",
                old='login, at, host = beyond.rpartition("@")',
                new='login, at, host = beyond.partition("@")',
                test="tests/unit/cli/test_config.py::test_a_password_that_nobody_escaped_is_not_shown_either",
            ),
        ),
    ),
    Requirement(
        "T1",
        "The threat model names attackers, defaults and its limits.",
        "contract 9",
        "proven",
        faults=threats.FAULTS,
    ),
)
