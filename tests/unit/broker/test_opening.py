"""Which store the settings name, and that no password of it is ever shown."""

import sys
from pathlib import Path

import pytest

from claudemesh.broker.settings import BrokerSettings
from claudemesh.broker.stores.opening import check_is_there, open_stores, opened, redact, store_path
from claudemesh.kernel.errors import AlreadyRunning, ConfigError
from claudemesh.runtime.world import real_world

HUSH = "s3cr3t"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:s3cr3t@db.example:5432/mesh", "postgresql://db.example:5432/mesh"),
        (
            "postgres://db.example,other:1/mesh?password=s3cr3t&sslmode=require",
            "postgres://db.example,other:1/mesh",
        ),
        ("postgresql://[::1]/mesh", "postgresql://[::1]/mesh"),
        ("postgresql:///mesh?host=/run/postgresql", "postgresql:///mesh"),
        ("postgresql://me:s3cr3t/@db/mesh", "postgresql://…"),
        ("postgresql://me:s3cr3t?@db/mesh", "postgresql://…"),
        ("postgresql://me:s3cr3t#@db/mesh", "postgresql://…"),
        ("postgresql://me:x@s3cr3t@db/mesh", "postgresql://…"),
        ("postgresql://db/mesh?password=x@s3cr3t", "postgresql://…"),
        ("s3cr3t", "postgresql://…"),
    ],
)
def test_of_a_url_only_where_it_leads_is_shown(url: str, shown: str) -> None:
    assert redact(url) == shown


@pytest.mark.parametrize("url", ["", "sqlite:///", "sqlite://x", "mysql://me:s3cr3t@db", "me:s3cr3t@db"])
def test_what_is_no_store_is_refused_and_not_quoted(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        store_path(BrokerSettings(store=url))
    assert HUSH not in str(refused.value)


async def test_without_the_extra_postgresql_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "claudemesh.broker.stores.postgres", None)
    with pytest.raises(ConfigError) as refused:
        await open_stores(BrokerSettings(store=f"postgresql://me:{HUSH}@db/mesh"), real_world())
    assert "claudemesh[postgres]" in str(refused.value)
    assert HUSH not in str(refused.value)


async def test_a_server_that_does_not_answer_is_named_without_its_password() -> None:
    settings = BrokerSettings(store=f"postgresql://me:{HUSH}@127.0.0.1:1/mesh")
    with pytest.raises(ConfigError) as failed:
        await open_stores(settings, real_world())
    assert "postgresql://127.0.0.1:1/mesh" in str(failed.value)
    assert HUSH not in str(failed.value)


@pytest.mark.parametrize(
    "place",
    [
        f"me:S3/{HUSH}@127.0.0.1:1/db",
        f"me:S3?{HUSH}@127.0.0.1/db",
        f"me:S3#{HUSH}@h/db",
        "h:99999/db",
        "h:x/db",
        "[/db",
    ],
)
async def test_a_url_that_leads_nowhere_is_refused_and_not_quoted(place: str) -> None:
    with pytest.raises(ConfigError) as refused:
        await open_stores(BrokerSettings(store=f"postgresql://{place}"), real_world())
    assert HUSH not in repr(refused.value)
    assert refused.value.__cause__ is None or HUSH not in repr(refused.value.__cause__)


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_what_somebody_means_to_stand_is_not_made(kind: str, tmp_path: Path) -> None:
    url = {"memory": "memory:", "file": f"sqlite:///{tmp_path / 'broker.db'}"}[kind]
    with pytest.raises(ConfigError):
        check_is_there(BrokerSettings(store=url))
    assert [*tmp_path.iterdir()] == []


async def test_a_file_has_one_broker_and_others_may_look_beside_it(tmp_path: Path) -> None:
    settings, world = BrokerSettings(store=f"sqlite:///{tmp_path / 'broker.db'}"), real_world()
    async with opened(settings, world, alone=True), opened(settings, world, alone=False) as beside:
        assert await beside.upkeep.check() == []
        with pytest.raises(AlreadyRunning):
            async with opened(settings, world, alone=True):
                pass
