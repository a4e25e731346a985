"""Names, instants, codes and signed bytes: what crosses the wire has one form, and anything else is refused."""

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudemesh.kernel.errors import InvalidRequest
from claudemesh.runtime.keys import KeyPair, verify
from claudemesh.wire import frames, signing
from claudemesh.wire.instants import parse_instant, render_instant
from claudemesh.wire.invite import CreateMesh, Invite, Redeem, parse_code, render_code
from claudemesh.wire.names import fold_member_name, parse_member_name, parse_slug, parse_topic
from claudemesh.wire.negotiation import Agreed, NegotiationFailed, judge_offer

INVITE = Invite(
    broker_url="http://127.0.0.1:7450",
    mesh_id="M",
    slug="demo",
    invite_id="I",
    uses=1,
    expires_at=5,
    broker_key="k",
    inviter_pubkey="p",
    signature="s",
)


@given(st.integers(min_value=-(10**12), max_value=10**14))
def test_an_instant_survives_its_text(wall_ms: int) -> None:
    assert parse_instant(render_instant(wall_ms)) == wall_ms


def test_an_instant_without_a_zone_is_utc_and_nonsense_is_refused() -> None:
    assert parse_instant("1970-01-01T00:00:01") == parse_instant("1970-01-01T01:00:01+01:00") == 1000
    with pytest.raises(InvalidRequest):
        parse_instant("yesterday")


@pytest.mark.parametrize("name", ["Alice", "Zoë", "build bot 7", "田中", "a"])
def test_a_member_may_be_called_what_people_are_called(name: str) -> None:
    assert parse_member_name(name) == name


@pytest.mark.parametrize(
    "name", ["", " alice", "alice ", "a\nb", "a\x1b[31m", "\u202eevil", "#x", "queue:x", "x" * 65, "\ud800"]
)
def test_a_name_that_could_deceive_a_terminal_or_a_reader_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_member_name(name)


@pytest.mark.req("Q8")
def test_names_that_look_alike_are_one() -> None:
    assert fold_member_name("ZOË") == fold_member_name("zoe\u0308")
    assert fold_member_name("Straße") == fold_member_name("STRASSE")


@pytest.mark.parametrize("text", ["", "-a", "a-", "A", "a" * 64, "a_b", "../x", "a b"])
def test_a_slug_is_fit_for_a_path(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_slug(text)
    assert parse_slug("team-1") == "team-1"


@pytest.mark.parametrize("text", ["", "/a", "a/", "a b", "ü", "a" * 129, "a:b", "#a"])
def test_a_topic_has_a_plain_name(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_topic(text)
    assert parse_topic("ops/deploys.eu-1") == "ops/deploys.eu-1"


def test_an_invite_survives_its_code() -> None:
    assert parse_code(render_code(INVITE)) == INVITE
    assert parse_code(f"  {render_code(INVITE)}\n") == INVITE


@pytest.mark.parametrize(
    "code", ["", "x", "é", "a" * 10_000, base64.urlsafe_b64encode(b"{}").decode(), render_code(INVITE)[:-5]]
)
def test_what_is_no_code_is_refused(code: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_code(code)


def test_no_signature_is_good_for_another_purpose_or_another_field() -> None:
    keys = KeyPair.generate()
    hello = frames.Hello(mesh_id="M", member_pubkey=keys.pubkey, instance_id="I", timestamp_ms=1, signature="")
    create = CreateMesh(slug="s", member_pubkey="p", name="n", timestamp_ms=1, signature="")
    redeem = Redeem(invite=INVITE, member_pubkey="p", name="n", timestamp_ms=1, signature="")
    attestation = frames.Attestation(session_pubkey="s", parent_member_pubkey="p", expires_at=1, signature="")
    forms = {
        signing.hello_bytes("nonce", hello),
        signing.hello_bytes("other", hello),
        signing.hello_bytes("nonce", msgspec.structs.replace(hello, mesh_id="N")),
        signing.hello_bytes("nonce", msgspec.structs.replace(hello, session_pubkey="S")),
        signing.hello_bytes("nonce", msgspec.structs.replace(hello, resume_token="T")),  # noqa: S106
        signing.create_mesh_bytes(create),
        signing.redeem_bytes(redeem),
        signing.invite_bytes(INVITE),
        signing.attestation_bytes(attestation),
    }
    assert len(forms) == 9
    signature = keys.sign(signing.hello_bytes("nonce", hello))
    assert [verify(keys.pubkey, form, signature) for form in forms].count(True) == 1


def test_a_field_cannot_smuggle_in_its_neighbours_bytes() -> None:
    with pytest.raises(ValueError, match="NUL"):
        signing.create_mesh_bytes(CreateMesh(slug="s\0p", member_pubkey="", name="n", timestamp_ms=1, signature=""))


@pytest.mark.parametrize("signature", ["", "zz" * 64, "0" * 127, "0" * 128, "é" * 128])
def test_a_signature_that_is_none_is_a_plain_no(signature: str) -> None:
    assert verify(KeyPair.generate().pubkey, b"x", signature) is False
    assert verify("nonsense", b"x", signature) is False


def test_a_key_of_small_order_verifies_nothing() -> None:
    neutral = "01" + "00" * 31
    assert verify(neutral, b"x", neutral + "00" * 32) is False


def test_a_key_pair_does_not_show_its_private_half() -> None:
    keys = KeyPair.generate()
    assert keys.seed.hex() not in repr(keys)


# --- negotiation -------------------------------------------------------------------------------------

DEDUPE = {"version": 2, "mode": "retention_scoped", "dedupe_retention_days": 365, "request_fingerprint": True}


def offer(**changes: dict[str, object] | None) -> dict[str, frames.Feature]:
    features: dict[str, dict[str, object] | None] = {
        "client_message_id_dedupe": dict(DEDUPE),
        "concurrent_connection_policy": {"version": 1, "default_policy": "prefer_newest"},
    }
    features |= changes
    return {name: frames.Feature(params) for name, params in features.items() if params is not None}


@pytest.mark.req("N2")
def test_a_good_offer_is_agreed_to() -> None:
    agreed = judge_offer(offer(max_payload={"inline_bytes": 2048, "blob_bytes": 4096}), [])
    assert isinstance(agreed, Agreed)
    assert (agreed.inline_bytes, agreed.policy, agreed.warnings) == (2048, "prefer_newest", ())


@pytest.mark.req("N2", "N3")
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"client_message_id_dedupe": None}, 4010),
        ({"concurrent_connection_policy": None}, 4010),
        ({"client_message_id_dedupe": DEDUPE | {"version": 1}}, 4011),
        ({"client_message_id_dedupe": DEDUPE | {"mode": "whenever"}}, 4011),
        ({"client_message_id_dedupe": DEDUPE | {"request_fingerprint": False}}, 4011),
        ({"client_message_id_dedupe": DEDUPE | {"dedupe_retention_days": "7"}}, 4011),
        ({"client_message_id_dedupe": DEDUPE | {"dedupe_retention_days": True}}, 4011),
        ({"client_message_id_dedupe": {**DEDUPE, "dedupe_retention_days": 6}}, 4012),
        ({"client_message_id_dedupe": {**DEDUPE, "dedupe_retention_days": 10**30}}, 4011),
    ],
)
def test_an_offer_that_falls_short_is_refused_with_its_code(
    changes: dict[str, dict[str, object] | None], code: int
) -> None:
    with pytest.raises(NegotiationFailed) as caught:
        judge_offer(offer(**changes), [])
    assert caught.value.close_code == code


@pytest.mark.req("N2")
def test_what_the_broker_itself_calls_missing_is_missing() -> None:
    with pytest.raises(NegotiationFailed) as caught:
        judge_offer(offer(), ["client_message_id_dedupe"])
    assert caught.value.close_code == 4010


@pytest.mark.req("N2")
@pytest.mark.parametrize("inline", [None, 1023, "many", True, 2.5])
def test_a_bad_optional_parameter_falls_back_and_is_told(inline: object) -> None:
    agreed = judge_offer(offer(max_payload={"inline_bytes": inline}), [])
    assert agreed.inline_bytes == 512 * 1024
    assert agreed.warnings


@pytest.mark.req("N2")
@pytest.mark.parametrize(
    "changes",
    [
        {"concurrent_connection_policy": {"default_policy": "both"}},
        {"max_payload": {"inline_bytes": 2048, "blob_bytes": 1}},
        {"key_epoch": {"max_concurrent_epochs": 0}},
        {"client_message_id_dedupe": DEDUPE | {"tombstone_history_pruned_window_days": "x"}},
    ],
)
def test_every_optional_parameter_is_looked_at(changes: dict[str, dict[str, object] | None]) -> None:
    agreed = judge_offer(offer(**changes), [])
    assert len(agreed.warnings) == 1
    assert (agreed.policy, agreed.blob_bytes, agreed.key_epochs) == ("prefer_newest", None, 1)


# --- frames ------------------------------------------------------------------------------------------


@pytest.mark.req("N1")
@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "{}", '{"type":"nope"}', '{"type":"send"}', '{"type":"hello","alg":"none"}', "[" * 100_000],
)
def test_what_is_no_frame_is_a_bad_frame(text: str) -> None:
    with pytest.raises(frames.BadFrame):
        frames.parse_to_broker(text)


@pytest.mark.req("N1")
def test_a_frame_of_frozen_items_reads_as_the_items_were() -> None:
    items = [
        frames.SendItem(client_message_id=f"m{n}", kind="dm", ref="r", body="é\n", fingerprint="f")
        for n in range(3)
    ]
    text = frames.render_send(7, [frames.render_item(item) for item in items])
    assert frames.parse_to_broker(text) == frames.parse_to_broker(frames.render(frames.Send(7, items)))


@pytest.mark.req("N1")
def test_a_field_of_a_newer_version_is_passed_over() -> None:
    assert frames.parse_from_broker('{"type":"welcome","nonce":"n","server_time_ms":1,"more":2}')
