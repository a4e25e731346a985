"""How old a row may become and still be sent."""

import pytest

from claudemesh.kernel.errors import ConfigError, MaxAgeAboveWindow
from claudemesh.kernel.retention import Permanent, RetentionScoped, derive_max_age


@pytest.mark.req("D8")
@pytest.mark.parametrize(("days", "hours"), [(7, 144), (8, 168), (10, 216), (11, 237), (30, 648), (365, 7884)])
def test_a_row_is_given_up_a_margin_before_its_id_is_forgotten(days: int, hours: int) -> None:
    assert derive_max_age(RetentionScoped(days)).hours == hours


@pytest.mark.req("D8")
def test_where_ids_are_kept_for_ever_the_default_is_a_week() -> None:
    assert derive_max_age(Permanent()).hours == 168
    assert derive_max_age(Permanent(default_hours=10, cap_hours=20)).hours == 10
    assert derive_max_age(Permanent(default_hours=20, cap_hours=20)).hours == 20


@pytest.mark.req("D8")
@pytest.mark.parametrize(
    ("mode", "hours"), [(RetentionScoped(7), 144), (RetentionScoped(30), 696), (Permanent(), 720), (Permanent(), 1)]
)
def test_an_override_within_the_safe_limit_is_taken(mode: RetentionScoped | Permanent, hours: int) -> None:
    assert derive_max_age(mode, hours).hours == hours


@pytest.mark.req("D8")
@pytest.mark.parametrize(
    ("mode", "hours"), [(RetentionScoped(7), 145), (RetentionScoped(30), 697), (Permanent(), 721)]
)
def test_an_override_above_the_limit_refuses_to_start_and_says_why(
    mode: RetentionScoped | Permanent, hours: int
) -> None:
    with pytest.raises(MaxAgeAboveWindow) as refused:
        derive_max_age(mode, hours)
    assert refused.value.code == "outbox_max_age_above_dedupe_window"
    assert refused.value.extras == {"limit_hours": hours - 1}
    assert "ids are kept" in refused.value.detail


@pytest.mark.parametrize(
    ("mode", "override"),
    [
        (RetentionScoped(6), None),
        (RetentionScoped(0), None),
        (RetentionScoped(7), 0),
        (Permanent(), -1),
        (Permanent(default_hours=721), None),
        (Permanent(default_hours=0), None),
    ],
)
def test_settings_that_make_no_sense_refuse_to_start(
    mode: RetentionScoped | Permanent, override: int | None
) -> None:
    with pytest.raises(ConfigError):
        derive_max_age(mode, override)
