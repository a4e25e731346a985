"""Settings are read once, and all that is wrong with them is said at once."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from claudemesh.kernel.errors import ConfigError
from claudemesh.runtime.settings import describe, load


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


@pytest.mark.parametrize("content", [b"name = ", b"\xff", b"[a\n"])
def test_a_file_that_is_not_toml_is_named(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"config\.toml is not TOML"):
        load(Daemon, path, {})


def test_a_file_that_cannot_be_read_is_named(path: Path) -> None:
    path.mkdir()
    with pytest.raises(ConfigError, match=r"config\.toml cannot be read"):
        load(Daemon, path, {})


# --- describing ------------------------------------------------------------------------------------


@pytest.mark.req("O2")
def test_every_setting_is_described_with_its_type_default_and_meaning() -> None:
    assert describe(Daemon) == [
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
