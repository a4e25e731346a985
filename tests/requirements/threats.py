"""The faults that prove T1 of contract 9: what the threat model says. Its row is in `surfaces`."""

from tests.requirements.model import Fault

_PAGE = "tests/docs/test_threat_model.py"

FAULTS: tuple[Fault, ...] = (
    Fault(
        what="In a container a daemon opens a TCP port by itself.",
        file="runtime/home.py",
        old="return self.ci is None and self.container is None",
        new="return self.ci is None",
        test=f"{_PAGE}::test_the_page_has_the_defaults_of_every_place_that_a_daemon_runs_in",
    ),
    Fault(
        what="In CI a key is kept.",
        file="runtime/home.py",
        old="return self.ci is not None",
        new="return False",
        test=f"{_PAGE}::test_the_page_has_the_defaults_of_every_place_that_a_daemon_runs_in",
    ),
    Fault(
        what="A CI that nobody wrote down is known.",
        file="runtime/home.py",
        old='"CIRCLECI", "JENKINS_URL")',
        new='"CIRCLECI", "JENKINS_URL", "TRAVIS")',
        test=f"{_PAGE}::test_the_page_has_the_defaults_of_every_place_that_a_daemon_runs_in",
    ),
    Fault(
        what="A broker listens to everybody unless it is told not to.",
        file="broker/settings.py",
        old='LISTEN_DEFAULT: Final = "127.0.0.1:7450"',
        new='LISTEN_DEFAULT: Final = "0.0.0.0:7450"',
        test=f"{_PAGE}::test_the_page_has_the_defaults_of_the_settings",
    ),
    Fault(
        what="A copied state directory is started with a warning.",
        file="daemon/settings.py",
        old='] = "refuse"',
        new='] = "warn"',
        test=f"{_PAGE}::test_the_page_has_the_defaults_of_the_settings",
    ),
    Fault(
        what="A folder that a repository brings along is taken for the home.",
        file="runtime/home.py",
        old='    home = os.path.expanduser("~/.claudemesh")',
        new='    home = ".claudemesh" if os.path.exists(".claudemesh") else os.path.expanduser("~/.claudemesh")',
        test=f"{_PAGE}::test_what_lies_in_the_folder_of_a_command_says_nothing",
    ),
)
