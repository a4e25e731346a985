"""Settings are read once, and all that is wrong with them is said at once."""

import os
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime.settings import Source, describe, load, load_with_sources


class Outbox(msgspec.Struct, frozen=True):
    max_age_hours_default: Annotated[int, Meta(ge=1, description="Older rows are not sent.")] = 168
    max_age_hours_cap: Annotated[int, Meta(ge=1, description="No row is older.")] = 720
    max_age_hours_override: Annotated[int | None, Meta(description="Instead of what is negotiated.")] = None

    def __post_init__(self) -> None:
        if self.max_age_hours_default > self.max_age_hours_cap:
            raise ValueError("the default age is above the cap")


class Tls(msgspec.Struct, frozen=True):
    key: Annotated[Path, Meta(description="The private key.")]
    ciphers: Annotated[tuple[str, ...], Meta(description="Which are offered.")] = ("a", "b")


class Ipc(msgspec.Struct, frozen=True):
    public_health_check: Annotated[bool, Meta(description="Health needs no token.")] = False
    rate: Annotated[float, Meta(description="Requests a second.")] = 100.0
    policy: Annotated[Literal["refuse", "warn"], Meta(description="What to do.")] = "refuse"
    tls: Tls = Tls(Path("key.pem"))


class Daemon(msgspec.Struct, frozen=True):
    name: Annotated[str, Meta(description="What it is called.")] = "me"
    outbox: Outbox = Outbox()
    ipc: Ipc = Ipc()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def problems_of(path: Path, text: str, environ: dict[str, str] | None = None) -> list[str]:
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load(Daemon, path, environ or {})
    problems = refused.value.extras["problems"]
    assert isinstance(problems, list)
    assert all(problem in refused.value.detail for problem in problems)
    return problems


# --- reading ---------------------------------------------------------------------------------------


@pytest.mark.req("O2")
def test_without_a_file_or_with_an_empty_one_the_defaults_hold(path: Path) -> None:
    assert load(Daemon, None, {}) == Daemon()
    assert load(Daemon, path, {}) == Daemon()
    path.write_text("")
    assert load(Daemon, path, {}) == Daemon()


@pytest.mark.req("O2")
def test_a_file_sets_what_it_names_and_leaves_the_rest(path: Path) -> None:
    path.write_text(
        'name = "you"\n[outbox]\nmax_age_hours_cap = 500\n[ipc]\npolicy = "warn"\nrate = 5\n'
        '[ipc.tls]\nkey = "/k"\nciphers = ["x"]\n'
    )
    assert load(Daemon, path, {}) == Daemon(
        "you", Outbox(max_age_hours_cap=500), Ipc(policy="warn", rate=5.0, tls=Tls(Path("/k"), ("x",)))
    )


@pytest.mark.req("O2")
def test_the_environment_overrules_the_file(path: Path) -> None:
    path.write_text("[outbox]\nmax_age_hours_cap = 500\n")
    environ = {
        "CLAUDEMESH_NAME": "7",
        "CLAUDEMESH_OUTBOX__MAX_AGE_HOURS_CAP": "600",
        "CLAUDEMESH_IPC__PUBLIC_HEALTH_CHECK": "true",
        "CLAUDEMESH_IPC__TLS__KEY": "/k",
        "CLAUDEMESH_HOME": "/h",
        "CLAUDEMESH_BROKER__LISTEN": "another program's",
        "PATH": "/bin",
    }
    settings = load(Daemon, path, environ)
    assert (settings.name, settings.outbox.max_age_hours_cap) == ("7", 600)
    assert (settings.ipc.public_health_check, settings.ipc.tls.key) == (True, Path("/k"))


# --- refusing --------------------------------------------------------------------------------------


@pytest.mark.req("O2")
@pytest.mark.parametrize(
    ("text", "unknown", "nearest"),
    [
        ("names = 'x'", "names", "name"),
        ("[outbx]", "outbx", "outbox"),
        ("[outbox]\nmax_age_hour_cap = 1", "outbox.max_age_hour_cap", "max_age_hours_cap"),
        ("[ipc.tls]\nkey = 'k'\ncypher = 1", "ipc.tls.cypher", "ciphers"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_known_one(
    path: Path, text: str, unknown: str, nearest: str
) -> None:
    assert problems_of(path, text) == [f"{unknown} is unknown, did you mean {nearest}?"]


@pytest.mark.req("O2")
def test_an_unknown_name_like_no_other_is_refused_without_a_guess(path: Path) -> None:
    assert problems_of(path, "zzz = 1") == ["zzz is unknown"]


@pytest.mark.req("O2")
def test_all_that_is_wrong_is_said_at_once(path: Path) -> None:
    text = '[outbox]\nmax_age_hours_cap = 0\nmax = 1\n[ipc]\nrate = "fast"\npolicy = "w"\ntls = 3\nfoo = 1\n'
    problems = problems_of(path, text, {"CLAUDEMESH_OUTBOX__MAX_AGE_HOURS_DEFAULT": "soon"})
    assert sorted(problem.partition(":")[0].partition(" ")[0] for problem in problems) == [
        "ipc.foo",
        "ipc.policy",
        "ipc.rate",
        "ipc.tls",
        "outbox.max",
        "outbox.max_age_hours_cap",
        "outbox.max_age_hours_default",
    ]
    assert any("CLAUDEMESH_OUTBOX__MAX_AGE_HOURS_DEFAULT" in problem for problem in problems)


@pytest.mark.req("O2")
def test_a_misspelt_variable_of_a_table_of_ours_is_refused(path: Path) -> None:
    problems = problems_of(path, "", {"CLAUDEMESH_OUTBOX__MAX_AGE_HOURS_CAPS": "1"})
    assert problems == [
        "CLAUDEMESH_OUTBOX__MAX_AGE_HOURS_CAPS is unknown, did you mean CLAUDEMESH_OUTBOX__MAX_AGE_HOURS_CAP?"
    ]


def test_a_value_is_of_its_type_in_the_file_and_not_merely_like_it(path: Path) -> None:
    (problem,) = problems_of(path, "[outbox]\nmax_age_hours_cap = '500'")
    assert problem.startswith("outbox.max_age_hours_cap: ")


def test_what_has_no_default_must_be_set(path: Path) -> None:
    path.write_text("[ipc.tls]\nciphers = []\n")
    assert load(Daemon, path, {}).ipc.tls == Tls(Path("key.pem"), ())  # the table around it has a key

    class Bare(msgspec.Struct):
        tls: Tls

    for environ in ({}, {"CLAUDEMESH_TLS__CIPHERSS": "x"}):
        with pytest.raises(ConfigError, match=r"tls\.key: has no default and must be set"):
            load(Bare, None, environ)
    assert load(Bare, None, {"CLAUDEMESH_TLS__KEY": "k"}).tls == Tls(Path("k"))
    assert [setting.default for setting in describe(Bare)] == ["required", '["a","b"]']


def test_values_that_do_not_go_together_are_refused(path: Path) -> None:
    assert problems_of(path, "[outbox]\nmax_age_hours_cap = 1") == ["outbox: the default age is above the cap"]


@pytest.mark.parametrize("content", [b"name = ", b"\xff", b"[a\n", b"a = " + b"1" * 5_000])
def test_a_file_that_is_not_toml_is_named(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"config\.toml is not TOML"):
        load(Daemon, path, {})


def test_a_file_that_is_nested_without_end_is_named(path: Path) -> None:
    path.write_bytes(b"a = " + b"[" * 5_000)
    with pytest.raises(ConfigError, match=r"config\.toml is nested too deeply"):
        load(Daemon, path, {})


def test_a_file_that_cannot_be_read_is_named(path: Path) -> None:
    path.mkdir()
    with pytest.raises(ConfigError, match=r"config\.toml cannot be read"):
        load(Daemon, path, {})


# --- where a value came from ---------------------------------------------------------------------------


class Sourced(msgspec.Struct, frozen=True):
    ttl_ms: Annotated[int, Meta(ge=10, description="How long.", extra={"variable": "TTL_MS"})] = 90
    key: Annotated[str | None, Meta(description="A key.", extra={"secret": True})] = None
    outbox: Outbox = Outbox()


@pytest.mark.req("O2")
def test_every_value_says_where_it_came_from(path: Path) -> None:
    path.write_text('# a comment\nkey = "k"\n\n[outbox]\nmax_age_hours_default = 5\nmax_age_hours_cap = 6\n')
    environ = {"CLAUDEMESH_OUTBOX__MAX_AGE_HOURS_CAP": "7", "TTL_MS": "20"}
    loaded = load_with_sources(Sourced, path, environ)
    assert {name: (found.value, found.source) for name, found in loaded.found.items()} == {
        "ttl_ms": (20, Source("environment", "TTL_MS")),
        "key": ("k", Source("file", str(path), 2)),
        "outbox.max_age_hours_default": (5, Source("file", str(path), 5)),
        "outbox.max_age_hours_cap": (7, Source("environment", "CLAUDEMESH_OUTBOX__MAX_AGE_HOURS_CAP")),
        "outbox.max_age_hours_override": (None, Source("default")),
    }
    assert loaded.settings == Sourced(20, "k", Outbox(5, 7))


@pytest.mark.req("O2")
def test_a_variable_of_its_own_wins_over_the_derived_one_and_says_nothing_when_it_is_empty(path: Path) -> None:
    derived = {"CLAUDEMESH_TTL_MS": "30"}
    assert load(Sourced, path, {**derived, "TTL_MS": "20"}).ttl_ms == 20
    assert load(Sourced, path, {**derived, "TTL_MS": ""}).ttl_ms == 30
    with pytest.raises(ConfigError, match="TTL_MS"):
        load(Sourced, path, {"TTL_MS": "9"})


@pytest.mark.req("O2")
def test_beside_what_is_wrong_the_rest_is_found(path: Path) -> None:
    path.write_text('kee = "k"\n[outbox]\nmax_age_hours_cap = "no"\nmax_age_hours_default = 5\n')
    loaded = load_with_sources(Sourced, path, {})
    assert loaded.settings is None
    assert loaded.found["outbox.max_age_hours_default"].value == 5
    assert "outbox.max_age_hours_cap" not in loaded.found
    assert loaded.problems[0] == "kee is unknown, did you mean key?"
    assert len(loaded.problems) == 2


@pytest.mark.req("O2")
def test_what_is_described_says_its_variable_and_whether_it_is_secret() -> None:
    told = {setting.name: setting for setting in describe(Sourced)}
    assert (told["ttl_ms"].variable, told["ttl_ms"].is_secret) == ("TTL_MS", False)
    assert (told["key"].variable, told["key"].is_secret) == (None, True)


def test_a_pipe_in_the_place_of_a_file_is_named_and_not_waited_for(path: Path) -> None:
    os.mkfifo(path)
    assert "is not a plain file" in load_with_sources(Sourced, path, {}).problems[0]
    path.unlink()
    path.write_bytes(b"#" * (2 << 20))
    assert "larger" in load_with_sources(Sourced, path, {}).problems[0]


# --- describing ------------------------------------------------------------------------------------


@pytest.mark.req("O2")
def test_every_setting_is_described_with_its_type_default_and_meaning() -> None:
    assert [setting[:4] for setting in describe(Daemon)] == [
        ("name", "str", '"me"', "What it is called."),
        ("outbox.max_age_hours_default", "int", "168", "Older rows are not sent."),
        ("outbox.max_age_hours_cap", "int", "720", "No row is older."),
        ("outbox.max_age_hours_override", "int", "unset", "Instead of what is negotiated."),
        ("ipc.public_health_check", "bool", "false", "Health needs no token."),
        ("ipc.rate", "float", "100.0", "Requests a second."),
        ("ipc.policy", '"refuse" | "warn"', '"refuse"', "What to do."),
        ("ipc.tls.key", "Path", '"key.pem"', "The private key."),
        ("ipc.tls.ciphers", "tuple of str", '["a","b"]', "Which are offered."),
    ]


@pytest.mark.req("O2")
def test_a_setting_that_does_not_say_what_it_is_for_is_a_mistake() -> None:
    class Silent(msgspec.Struct):
        level: int = 1

    with pytest.raises(TypeError, match="level"):
        describe(Silent)
