"""The faults that prove O1 of contract 9: metrics, logs and tracing. Its row is in `surfaces`."""

from tests.requirements.model import Fault

_PAGES = "tests/docs/test_observed_pages.py"
_OBSERVED = "tests/integration/test_observed.py"
_TRACING = "tests/integration/test_tracing.py"
_HOSTILE = "tests/integration/test_hostile_collectors.py"

FAULTS: tuple[Fault, ...] = (
    Fault(
        what="A recipient's span is in a trace of its own.",
        file="daemon/spans.py",
        old="trace_id = derive_trace_id(event.sender_pubkey, event.client_message_id)",
        new="trace_id = derive_trace_id(self._pubkey, event.client_message_id)",
        test=f"{_TRACING}::test_a_message_is_one_trace_from_its_senders_outbox_to_each_inbox",
    ),
    Fault(
        what="A send that died looks like one that succeeded.",
        file="daemon/spans.py",
        old="error=None if event.event is OutboxEvent.ACCEPTED else event.reason or event.event.value,",
        new="",
        test=f"{_TRACING}::test_a_send_that_died_is_a_span_with_its_reason",
    ),
    Fault(
        what="What waits to be sent is lost when the daemon stops.",
        file="daemon/spans.py",
        old="await asyncio.to_thread(spans.close)",
        new="pass",
        test=f"{_TRACING}::test_what_waits_is_sent_when_a_daemon_stops_and_a_share_of_none_is_none",
    ),
    Fault(
        what="A collector that never ends its answer holds up the end of a daemon.",
        file="runtime/spans.py",
        old="ending.join(CLOSE_S)",
        new="ending.join()",
        test=f"{_HOSTILE}::test_a_collector_that_never_ends_its_answer_does_not_hold_up_the_end",
    ),
    Fault(
        what="The token for the collector is in the log.",
        file="runtime/spans.py",
        old="self._warn(_said_by(record))",
        new="self._warn(record.getMessage())",
        test=f"{_HOSTILE}::test_a_header_that_is_none_is_told_of_without_its_token",
    ),
    Fault(
        what="A promised metric has another name.",
        file="daemon/metrics.py",
        old='"cm_daemon_dedupe_history_pruned_total"',
        new='"cm_daemon_history_pruned_total"',
        test=f"{_PAGES}::test_every_metric_that_was_promised_is_declared_and_says_what_it_means",
    ),
    Fault(
        what="A metric is there and does not say what it means.",
        file="broker/metering.py",
        old='"Budget spent on messages refused afterwards."',
        new='""',
        test=f"{_PAGES}::test_every_metric_that_was_promised_is_declared_and_says_what_it_means",
    ),
    Fault(
        what="Two events have one name.",
        file="edge/events.py",
        old='"edge.upstream_reached"',
        new='"edge.upstream_lost"',
        test=f"{_PAGES}::test_every_event_of_the_sources_has_a_name_of_its_own_and_says_when_it_happens",
    ),
    Fault(
        what="A broker whose terms daemons refuse does not count it.",
        file="broker/metering.py",
        old="if event.code in _TERMS_REFUSED:",
        new="if event.code == 4010:",
        test=f"{_OBSERVED}::test_a_broker_counts_daemons_that_do_not_agree_to_when_it_forgets_ids",
    ),
    Fault(
        what="A message that was refused is counted as accepted.",
        file="broker/metering.py",
        old='self._accepts.of("accepted").inc(event.accepted)',
        new='self._accepts.of("accepted").inc(total)',
        test=f"{_OBSERVED}::test_a_brokers_counts_follow_what_became_of_each_message",
    ),
    Fault(
        what="A daemon that lost its broker still says that it is connected.",
        file="daemon/metrics.py",
        old="observer.subscribe(BrokerDisconnected, lambda _: self._connected.set(0))",
        new="observer.subscribe(BrokerDisconnected, lambda _: None)",
        test=f"{_OBSERVED}::test_a_daemons_counts_follow_its_life",
    ),
    Fault(
        what="The age of the oldest row is told in milliseconds.",
        file="daemon/metrics.py",
        old="self._age.set(lag_ms / 1000)",
        new="self._age.set(lag_ms + 1)",
        test=f"{_OBSERVED}::test_a_daemons_counts_follow_its_life",
    ),
    Fault(
        what="The path of a request is logged as its caller wrote it.",
        file="asgi/routes.py",
        old='path = entry.route.path if entry else ""\n            seconds',
        new='path = scope["path"]\n            seconds',
        test=f"{_OBSERVED}::test_bodies_and_secrets_are_in_no_log_even_where_everything_is_logged",
    ),
)
