"""The page on diagnosis: what `doctor` looks at, from the declarations of its checks."""

from collections.abc import Iterator
from itertools import groupby

from claudemesh.cli.doctor.checks import ALL
from tools.made import MADE


def doctor_page() -> Iterator[str]:
    yield from (
        MADE,
        "",
        "# Find out what is wrong",
        "",
        "```console",
        "$ claudemesh doctor",
        "```",
        "",
        "It runs every check below on this machine: without a daemon, without a mesh, and on a damaged home too.",
        "Each has a verdict. What did not pass comes last, with the command that mends it. Nothing is changed,",
        "and what runs is not disturbed: databases are opened read-only, and no check takes longer than a minute.",
        "",
        "| verdict | | passes |",
        "|---|---|---|",
        "| `ok` | as it should be | yes |",
        "| `-` (`not_applicable`) | there is no such thing here | yes |",
        "| `warn` | it works, and will not for long or not as it should | no |",
        "| `?` (`unknown`) | it could not be found out, in time or at all | no |",
        "| `FAIL` (`fail`) | it does not work | no |",
        "",
        "It exits with 0 only if all pass, else with 1. `--mesh SLUG` looks at one mesh. `--json` gives `{ok,",
        "checks: [{name, family, subject, verdict, detail, fix, fixable}], fixed, bundle, bundle_error}`.",
        "",
        "## Mend what is safe to mend",
        "",
        "```console",
        "$ claudemesh doctor --fix",
        "```",
        "",
        "It closes what others could read, removes sockets, port files and pids whose process is gone (under the",
        "lock that this process would hold), removes half-written files that are older than an hour, and makes",
        "the home if there is none. It says each thing it did, and then the same checks run again and judge. It",
        "never changes what is in a database, a key or a setting: for these the fix is a command of your own.",
        "",
        "## Ask somebody for help",
        "",
        "```console",
        "$ claudemesh doctor --bundle",
        "$ claudemesh doctor --bundle ./for-support.tar.gz",
        "```",
        "",
        "A `tar.gz` that only you can read: versions, the checks, settings with where they came from, the last",
        "lines of the logs, schema versions, rows by state, and metrics. Never in it: bodies, meta, keys, tokens,",
        "invite codes, or names of files beyond our own. A long key or id is a mark such as `#1f3a9c02`, the same",
        "mark for the same text. Look at it before you send it.",
        "",
        "`claudemesh config show` prints every setting in force with its source: a default, a file and its line, a",
        "variable of the environment, or the command line. Secrets are hidden.",
        "",
        "## What is checked",
        "",
    )
    for family, checks in groupby(ALL, lambda check: check.family):
        yield from (f"### {family.capitalize()}", "", "| check | passes if | if not |", "|---|---|---|")
        yield from (f"| `{check.name}` | {check.looks_at} | {check.remedy} |" for check in checks)
        yield ""
