"""Contract 3: between daemon and broker."""

from tests.requirements.model import Fault, Requirement

_MEETINGS = "tests/integration/test_presence.py"
_HELLO = "tests/integration/test_broker_hello.py"
_SENDER = "tests/acceptance/test_sender_promises.py"
_TERMS = "tests/acceptance/test_terms_and_tokens.py"
_TLS = "tests/integration/test_tls.py"

REQUIREMENTS: tuple[Requirement, ...] = (
    Requirement(
        "N1",
        "One main socket speaks the documented tagged JSON frames.",
        "contract 3",
        "proven",
        faults=(
            Fault(
                what="The fields of a hello are not those of the contract.",
                file="wire/frames.py",
                old='class Hello(Frame, frozen=True, tag="hello", rename="camel"):',
                new='class Hello(Frame, frozen=True, tag="hello"):',
                test="tests/integration/test_broker.py::test_the_frames_are_spelled_as_the_contract_spells_them",
            ),
            Fault(
                what="A frame is tagged with another word.",
                file="wire/frames.py",
                old='tag="send_result"',
                new='tag="sent"',
                test="tests/integration/test_broker.py::test_the_frames_are_spelled_as_the_contract_spells_them",
            ),
            Fault(
                what="What comes before the hello is answered after it.",
                file="broker/ws.py",
                old='CLOSE_UNAUTHENTICATED, "hello_required")\n        return frame\n',
                new='CLOSE_BAD_FRAME, "hello_required")\n        return frame\n',
                test=f"{_HELLO}::test_nothing_is_understood_before_the_hello",
            ),
            Fault(
                what="A daemon believes any certificate.",
                file="daemon/link.py",
                old="            proxy=None,\n",
                new=(
                    "            proxy=None,\n"
                    "            ssl=ssl._create_unverified_context() if url[2] == 's' else None,\n"
                ),
                test=f"{_TLS}::test_a_broker_under_another_name_than_its_certificates_is_not_spoken_to",
            ),
            Fault(
                what="Whoever makes or joins a mesh believes any certificate.",
                file="cli/enrol.py",
                old="context=ssl.create_default_context()",
                new="context=ssl._create_unverified_context()",
                test=f"{_TLS}::test_a_mesh_is_not_made_at_a_broker_that_nobody_vouches_for",
            ),
        ),
    ),
    Requirement(
        "N2",
        "Features are negotiated and every parameter is validated.",
        "contract 3",
        "proven",
        faults=(
            Fault(
                what="A policy that nobody knows ends the connection.",
                file="wire/negotiation.py",
                old="    if policy in POLICIES:\n",
                new=(
                    "    if policy not in POLICIES:\n"
                    "        raise _invalid(CONCURRENT, str(policy))\n"
                    "    if policy:\n"
                ),
                test=f"{_SENDER}::test_a_bad_optional_parameter_is_told_and_the_daemons_own_default_holds",
            ),
            Fault(
                what="A size below the floor is believed.",
                file="wire/negotiation.py",
                old="if _is_whole(offered) and floor.least <= offered",
                new="if _is_whole(offered) and 0 <= offered",
                test=f"{_SENDER}::test_a_bad_optional_parameter_is_told_and_the_daemons_own_default_holds",
            ),
            Fault(
                what="A frame is too small for the largest message that was agreed on.",
                file="broker/offer.py",
                old="inline_bytes * _ESCAPED_BYTES_MAX",
                new="inline_bytes",
                test=f"{_HELLO}::test_the_brokers_offer_is_one_that_a_daemon_takes",
            ),
        ),
    ),
    Requirement(
        "N3",
        "Each way to end a connection has its close code and reaction.",
        "contract 3",
        "proven",
        faults=(
            Fault(
                what="A daemon that cannot agree with any broker ends as if all were well.",
                file="daemon/app.py",
                old="exit_code = EXIT_FAILED",
                new="exit_code = EXIT_OK",
                test=f"{_TERMS}::test_a_daemon_that_finds_no_terms_at_its_first_connection_ends_and_says_why",
            ),
            Fault(
                what="A daemon ends when a broker's terms get worse, and accepts nothing more.",
                file="daemon/connector.py",
                old="if not self._has_agreed:",
                new="if self._has_agreed is not None:",
                test=f"{_TERMS}::test_a_daemon_that_had_terms_before_goes_on_accepting_when_they_get_worse",
            ),
            Fault(
                what="A hello of long ago is as good as one of now.",
                file="broker/hello.py",
                old="if abs(hello.timestamp_ms - now_ms) > CLOCK_SKEW_MAX_MS:",
                new="if hello.timestamp_ms - now_ms > CLOCK_SKEW_MAX_MS:",
                test=f"{_HELLO}::test_a_clock_that_is_too_far_off_is_told_the_right_time",
            ),
            Fault(
                what="A hello that was heard on another connection is taken.",
                file="wire/signing.py",
                old="        nonce,\n",
                new='        "",\n',
                test=f"{_HELLO}::test_a_hello_is_good_once_and_on_its_own_connection",
            ),
            Fault(
                what="A daemon that requires what there is not stays connected.",
                file="broker/ws.py",
                old="        if response.missing_required:\n",
                new="        if not response.supported:\n",
                test=f"{_HELLO}::test_a_daemon_that_requires_what_there_is_not_is_told_and_closed",
            ),
            Fault(
                what="A caller that says nothing may stay.",
                file="broker/ws.py",
                old="async with asyncio.timeout(self._house.settings.hello_timeout_s):",
                new="async with asyncio.timeout(None):",
                test=f"{_HELLO}::test_a_caller_that_says_nothing_is_closed",
            ),
        ),
    ),
    Requirement(
        "N4",
        "A second connection of a key follows instance and policy.",
        "contract 3",
        "proven",
        faults=(
            Fault(
                what="Where the oldest is preferred, another instance takes over all the same.",
                file="broker/presence/policy.py",
                old="if mine is None and oldest is not None:",
                new="if mine is not None and oldest is not None:",
                test=f"{_MEETINGS}::test_another_instance_meets_the_policy_of_its_mesh_also_when_the_first_is_in_grace",
            ),
            Fault(
                what="A daemon that comes back is taken for another one.",
                file="broker/presence/policy.py",
                old="if one.instance_id == identity.instance_id), None)",
                new="if one.instance_id != identity.instance_id), None)",
                test=f"{_MEETINGS}::test_a_second_hello_of_the_same_instance_swaps_the_socket_and_nobody_notices",
            ),
            Fault(
                what="Nobody learns that an instance was refused.",
                file="broker/seating.py",
                old="            self._tell_meeting(arrival, Met(refused.instance_id, Meeting.REFUSED))\n",
                new="",
                test=f"{_MEETINGS}::test_another_instance_meets_the_policy_of_its_mesh_also_when_the_first_is_in_grace",
            ),
            Fault(
                what="Whoever has to go at another broker stays.",
                file="broker/switchboard.py",
                old="            self.publish(Unseated(token, meeting))\n",
                new="            pass\n",
                test="tests/acceptance/test_several_brokers.py::test_two_instances_meet_across_brokers_by_the_policy_of_their_mesh",
            ),
        ),
    ),
)
