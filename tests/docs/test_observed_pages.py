"""What can be observed is written down: each metric, each event, and alerts that name nothing that is not there."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import observed_page

ROOT = Path(__file__).parents[2]
NAMES = {one.name: one for metrics in observed_page.described().values() for one in metrics}

# As the contract names them: O1 of daemon and broker, R10 of the relay.
PROMISED = {
    "cm_daemon_": "connected reconnects_total lag_ms outbox_depth outbox_age_seconds dedupe_total "
    "dedupe_history_pruned_total disk_pct send_total recv_total ipc_request_total ipc_duration_seconds "
    "local_token_rotations_total clone_suspected_total invalid_inbound_total",
    "cm_broker_": "dedupe_orphan_check_total atomicity_violation_found dedupe_fingerprint_mismatch_total "
    "dedupe_misconfig_total rate_limit_rejection_total rate_limit_consumed_then_b2_rejected_total accept_total "
    "delivery_depth",
    "cm_edge_": "outbox_pending outbox_oldest_age_seconds replay_failures_total conflicts",
}


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


@pytest.mark.req("O1")
def test_every_metric_that_was_promised_is_declared_and_says_what_it_means() -> None:
    for prefix, names in PROMISED.items():
        assert [name for name in names.split() if f"{prefix}{name}" not in NAMES] == []
    assert [name for name, one in NAMES.items() if not one.meaning.endswith(".")] == []
    assert sum(map(len, observed_page.described().values())) == len(NAMES)


@pytest.mark.req("O1")
def test_the_reference_has_a_row_for_every_metric_and_every_event() -> None:
    listed = re.findall(r"^\| `(\S+)` \|", page("reference/metrics.md"), re.MULTILINE)
    assert listed == list(NAMES)
    told = re.findall(r"^\| `(\S+)` \|", page("reference/events.md"), re.MULTILINE)
    assert sorted(told) == [event.name for event in observed_page.events()]


@pytest.mark.req("O1")
def test_every_event_of_the_sources_has_a_name_of_its_own_and_says_when_it_happens() -> None:
    events = observed_page.events()
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    assert len(events) == sum(text.count(f"    {observed_page.MARK}") for text in sources)
    names = [event.name for event in events]
    assert len(set(names)) == len(names)
    assert [name for name in names if not re.fullmatch(r"[a-z]+\.[a-z]+(_[a-z]+)*", name)] == []
    assert [event.__name__ for event in events if not observed_page.meaning_of(event)] == []


# --- alerts ------------------------------------------------------------------------------------------

TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)(?![\w.])|(?P<range>\[\d+[smhd]\])|(?P<name>[a-z_]\w*)|(?P<text>\"[^\"]*\")"
    r"|(?P<sign>==|!=|>=|<=|=~|!~|[-+*/(){},=<>]))"
)
FUNCTIONS = {"rate", "increase", "delta", "time", "histogram_quantile"}
OVER_A_RANGE = {"rate", "increase", "delta"}
AGGREGATES = {"sum", "max", "min"}
BETWEEN = {"and", "or", "unless", "+", "-", "*", "/", "==", "!=", ">", "<", ">=", "<="}


class Promql:
    """Reads as much of the language as our alerts use, and refuses everything else."""

    def __init__(self, text: str) -> None:
        self._tokens = list(self._split(text))
        self.selectors: list[tuple[str, dict[str, str], bool]] = []  # name, labels, over a range

    @staticmethod
    def _split(text: str) -> Iterator[str]:
        at, text = 0, text.strip()
        while at < len(text):
            matched = TOKEN.match(text, at)
            assert matched, f"cannot be read from here: {text[at:]!r}"
            yield matched[0].strip()
            at = matched.end()

    def read(self) -> None:
        self._expression()
        assert not self._tokens, self._tokens

    def _next(self, *wanted: str) -> str:
        assert self._tokens, f"it ends where {wanted} should be"
        token = self._tokens.pop(0)
        assert not wanted or token in wanted, f"{token} is not one of {wanted}"
        return token

    def _peek(self) -> str:
        return self._tokens[0] if self._tokens else ""

    def _expression(self) -> None:
        self._operand()
        while self._peek() in BETWEEN:
            self._next()
            self._operand()

    def _operand(self) -> None:
        token = self._next()
        if token == "(":  # noqa: S105 - a sign
            self._expression()
            self._next(")")
        elif token in AGGREGATES:
            self._aggregate()
        elif token in FUNCTIONS:
            self._call(token)
        elif not token[0].isdigit():
            self._selector(token)

    def _aggregate(self) -> None:
        if self._peek() == "by":
            self._next()
            self._next("(")
            while self._next() != ")":
                pass
        self._next("(")
        self._expression()
        self._next(")")

    def _call(self, function: str) -> None:
        self._next("(")
        before = len(self.selectors)
        while self._peek() != ")":
            self._expression()
            if self._peek() == ",":
                self._next()
        self._next(")")
        if function in OVER_A_RANGE:
            assert [over for *_, over in self.selectors[before:]] == [True], f"{function} is of one range"

    def _selector(self, name: str) -> None:
        labels: dict[str, str] = {}
        if self._peek() == "{":
            self._next()
            while (label := self._next()) != "}":
                self._next("=", "!=")
                labels[label] = self._next().strip('"')
                assert self._next(",", "}") == "}", "one label is enough"
                break
        is_range = self._peek().startswith("[")
        if is_range:
            self._next()
        self.selectors.append((name, labels, is_range))


def alerts() -> list[str]:
    return re.findall(r"```promql\n(.*?)\n```", page("how-to/monitor.md"), re.DOTALL)


def metric_of(selector: str) -> str:
    for suffix in ("_bucket", "_sum", "_count"):
        base = selector.removesuffix(suffix)
        if base != selector and base in NAMES and NAMES[base].kind == "histogram":
            return base
    return selector


@pytest.mark.req("O1")
@pytest.mark.parametrize("alert", alerts())
def test_every_alert_can_be_read_and_names_only_what_there_is(alert: str) -> None:
    expression = Promql(alert)
    expression.read()
    assert expression.selectors
    for name, labels, is_range in expression.selectors:
        one = NAMES[metric_of(name)]
        assert all(value in one.labels[label] for label, value in labels.items()), labels
        if one.kind == "counter":
            assert is_range, f"{name} only grows: how fast is the question"


@pytest.mark.parametrize("nonsense", ["cm_x >", "rate(cm_x)", "sum(cm_x", "cm_x{a=}", "cm_x ? 1"])
def test_the_reader_of_alerts_refuses_what_prometheus_would(nonsense: str) -> None:
    with pytest.raises(AssertionError):
        Promql(nonsense).read()


def test_what_is_said_to_be_in_a_log_is_an_event() -> None:
    known = {event.name for event in observed_page.events()}
    told = set(re.findall(r"`((?:daemon|broker|edge|hub|http)\.[a-z_]+)`", page("how-to/monitor.md")))
    assert told
    assert told <= known | {"http.port", "broker.toml"}
