"""Metrics are what Prometheus reads, and no caller can make a new series."""

from enum import Enum

import pytest
from prometheus_client.parser import text_string_to_metric_families

from claudemesh.runtime.metrics import CONTENT_TYPE, Metrics


class Outcome(Enum):
    QUEUED = "queued"
    REFUSED = "refused"


def read(metrics: Metrics) -> dict[str, dict[tuple[str, ...], float]]:
    """Return every sample as Prometheus would see it, by its name and its labels' values in the labels' order."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


@pytest.mark.req("O1")
def test_a_counter_counts_by_labels_and_is_there_with_zero_before() -> None:
    metrics = Metrics()
    sends = metrics.counter("cm_daemon_send_total", "Sends.", {"outcome": Outcome, "listener": ("socket", "tcp")})
    assert set(read(metrics)["cm_daemon_send_total"].values()) == {0.0}
    sends.of("queued", "tcp").inc()
    sends.of(Outcome.QUEUED, "tcp").inc(2)
    assert read(metrics)["cm_daemon_send_total"] == {
        ("socket", "queued"): 0,
        ("tcp", "queued"): 3,
        ("socket", "refused"): 0,
        ("tcp", "refused"): 0,
    }


@pytest.mark.req("O1")
def test_a_label_s_value_that_was_not_declared_is_refused() -> None:
    metrics = Metrics()
    sends = metrics.counter("cm_daemon_send_total", "Sends.", {"outcome": Outcome})
    for labels in [("other",), (), ("queued", "queued")]:
        with pytest.raises(KeyError):
            sends.of(*labels)
    assert len(read(metrics)["cm_daemon_send_total"]) == 2


@pytest.mark.req("O1")
def test_a_gauge_is_set_or_asked() -> None:
    metrics = Metrics()
    depth = metrics.gauge("cm_daemon_outbox_depth", "Rows.", {"state": ("pending", "dead")})
    depth.of("dead").set(7)
    ages = iter([1.5, 2.5])
    metrics.gauge("cm_daemon_outbox_age_seconds", "Age.", read=lambda: next(ages))
    assert read(metrics)["cm_daemon_outbox_depth"] == {("pending",): 0, ("dead",): 7}
    assert read(metrics)["cm_daemon_outbox_age_seconds"] == {(): 2.5}


@pytest.mark.req("O1")
def test_a_histogram_counts_in_buckets() -> None:
    metrics = Metrics()
    durations = metrics.histogram("cm_daemon_ipc_duration_seconds", "Time.", buckets=(0.001, 0.1))
    for seconds in (0.0005, 0.05, 0.06, 3.0):
        durations.of().observe(seconds)
    found = read(metrics)
    assert found["cm_daemon_ipc_duration_seconds_bucket"] == {("0.001",): 1, ("0.1",): 3, ("+Inf",): 4}
    assert found["cm_daemon_ipc_duration_seconds_count"] == {(): 4}


@pytest.mark.req("O1")
def test_what_is_rendered_are_the_declared_names_and_no_others() -> None:
    metrics = Metrics()
    metrics.counter("cm_daemon_send_total", "Sends.").of().inc()
    metrics.histogram("cm_daemon_ipc_duration_seconds", "Time.").of().observe(1)
    assert sorted(read(metrics)) == [
        "cm_daemon_ipc_duration_seconds_bucket",
        "cm_daemon_ipc_duration_seconds_count",
        "cm_daemon_ipc_duration_seconds_sum",
        "cm_daemon_send_total",
    ]
    assert CONTENT_TYPE.startswith("text/plain; version=0.0.4")


def test_two_services_in_one_process_do_not_meet() -> None:
    one, other = Metrics(), Metrics()
    one.counter("cm_daemon_send_total", "Sends.").of().inc()
    other.counter("cm_daemon_send_total", "Sends.")
    assert (read(one)["cm_daemon_send_total"], read(other)["cm_daemon_send_total"]) == ({(): 1}, {(): 0})


@pytest.mark.parametrize("name", ["daemon_send_total", "cm_total", "cm_daemon_Send_total", "cm_daemon_send"])
def test_a_name_of_another_form_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Metrics().counter(name, "Sends.")


def test_a_name_is_declared_once() -> None:
    metrics = Metrics()
    metrics.gauge("cm_daemon_lag_ms", "Lag.")
    with pytest.raises(ValueError, match="cm_daemon_lag_ms"):
        metrics.gauge("cm_daemon_lag_ms", "Lag.")
