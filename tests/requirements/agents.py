"""The faults of contract 9's C3: the MCP server."""

from tests.requirements.model import Fault

_UNIT = "tests/unit/mcp"
_MESH = "tests/integration/test_mcp_mesh.py"
_SESSION = "tests/integration/test_mcp_session.py"

_BY_SETTINGS = "__import__('claudemesh.edge.settings').edge.settings.load_settings(self._home.root).listen"

FAULTS: tuple[Fault, ...] = (
    Fault(
        what="A key that stands for other arguments is answered with what stands there.",
        file="mcp/keys.py",
        old="ADMISSION.judge(Standing(found.state, found.fingerprint), presented)",
        new="ADMISSION.judge(Standing(found.state, presented), presented)",
        test=f"{_UNIT}/test_keys.py::test_the_same_key_for_another_call_is_refused_and_does_nothing",
    ),
    Fault(
        what="A write that the relay has queued is called done.",
        file="mcp/relayed.py",
        old='is_done=outcome == "forwarded",',
        new="is_done=True,",
        test=f"{_UNIT}/test_relayed.py::test_a_write_that_waits_is_never_presented_as_done",
    ),
    Fault(
        what="A claim whose answer was lost in a crash leases a second step.",
        file="mcp/work.py",
        old="        if held is not None:\n            return held\n",
        new="",
        test=f"{_UNIT}/test_work.py::test_a_claim_that_crashed_before_it_was_kept_finds_its_step_again",
    ),
    Fault(
        what="Who lost the lease is told only that the ledger refused.",
        file="mcp/work.py",
        old="if any(word in error.detail for word in _LOST):",
        new="if not error.detail:",
        test=f"{_UNIT}/test_work.py::test_who_does_not_hold_the_lease_completes_nothing",
    ),
    Fault(
        what="A body is handed on with all that it hides.",
        file="mcp/parts.py",
        old="shown = escape(piece, lines=True)",
        new="shown = piece",
        test=f"{_UNIT}/test_shown.py::test_a_body_can_do_nothing_but_be_read",
    ),
    Fault(
        what="A hint to the host quotes the message.",
        file="mcp/hints.py",
        old='"sender": sender,',
        new='"sender": sender, "body": str(message.get("body")),',
        test=f"{_UNIT}/test_hints.py::test_a_hint_is_one_line_that_holds_nothing_of_the_body",
    ),
    Fault(
        what="After a restart of the daemon nobody sees the session any more.",
        file="mcp/attending.py",
        old="            yield Emit((yield from _register(plans, register)))\n            failures = 0\n",
        new="            if not failures:\n                yield Emit((yield from _register(plans, register)))\n",
        test=f"{_UNIT}/test_attending.py::test_after_the_daemon_was_away_it_is_registered_anew_and_goes_on_where_it_was",
    ),
    Fault(
        what="The session stays in a mesh that was left, while the tools act in the next.",
        file="mcp/attending.py",
        old="                if not is_here():\n                    return\n",
        new="",
        test=f"{_SESSION}::test_the_session_goes_where_the_mesh_of_its_home_goes",
    ),
    Fault(
        what="A mesh that was left shows the session as long as its daemon runs.",
        file="mcp/attending.py",
        old="                await self._take(what)\n        await self._leave()\n",
        new="                await self._take(what)\n",
        test=f"{_SESSION}::test_the_session_goes_where_the_mesh_of_its_home_goes",
    ),
    Fault(
        what="What nobody expected ends the session in silence.",
        file="mcp/attending.py",
        old="except Exception as error:",
        new="except ZeroDivisionError as error:",
        test=f"{_SESSION}::test_what_nobody_expected_is_told_of_and_the_session_goes_on",
    ),
    Fault(
        what="A daemon that names no key for the session is not listened to either.",
        file="mcp/attending.py",
        old='with reading("answer to a registration"):',
        new="if answer is not None:",
        test=f"{_UNIT}/test_attending.py::test_a_daemon_whose_answer_has_no_key_is_still_listened_to",
    ),
    Fault(
        what="What fails when the server ends keeps its keys and connections open.",
        file="mcp/server.py",
        old="        stack.push_async_callback(parts.keys.aclose)\n"
        "        stack.push_async_callback(attending.aclose)\n"
        "        yield build(parts, observer, met)\n",
        new="        yield build(parts, observer, met)\n        await attending.aclose()\n"
        "        await parts.keys.aclose()\n",
        test=f"{_SESSION}::test_whichever_part_fails_at_the_end_the_others_are_closed",
    ),
    Fault(
        what="A server whose folder has a name of other bytes is shown to nobody.",
        file="mcp/attending.py",
        old='folder.decode(errors="replace")',
        new='folder.decode(errors="surrogateescape")',
        test=f"{_UNIT}/test_attending.py::test_a_folder_that_is_gone_or_has_a_name_of_other_bytes_keeps_no_session_from_being_shown",
    ),
    Fault(
        what="The unread count is left out of what a tool answers.",
        file="mcp/tools.py",
        old="replace(told, unread=await parts.daemon.unread())",
        new="told",
        test=f"{_MESH}::test_a_message_is_sent_read_marked_and_answered",
    ),
    Fault(
        what="A daemon that hangs holds every answer up for as long as a call may take.",
        file="mcp/mesh.py",
        old='asks.get("/v1/health"), by_ms)',
        new='asks.get("/v1/health"))',
        test=f"{_UNIT}/test_tools.py::test_a_daemon_that_hangs_keeps_no_answer_that_needs_none",
    ),
    Fault(
        what="The unread count is left out of what a resource shows.",
        file="mcp/resources.py",
        old="await parts.daemon.unread()",
        new="None",
        test=f"{_MESH}::test_resources_are_listed_and_read_with_cursors",
    ),
    Fault(
        what="A member's name ends the tag that a host puts around a hint.",
        file="mcp/hints.py",
        old='confine(str(message.get("from_name") or message.get("from") or "somebody"), NAME_CHARS_MAX)',
        new='str(message.get("from_name"))',
        test=f"{_UNIT}/test_hints.py::test_a_name_cannot_end_its_quotes_or_the_tag_that_a_host_puts_around_it",
    ),
    Fault(
        what="Whoever listens at the relay's port is sent writes while the relay is down.",
        file="mcp/relay.py",
        old='own.ask("GET", "/status", timeout_s=TIMEOUT_S).checked().get("listen")',
        new=_BY_SETTINGS,
        test=f"{_UNIT}/test_relayed.py"
        "::test_whoever_listens_at_the_port_of_a_relay_that_is_down_is_sent_neither_write_nor_token",
    ),
    Fault(
        what="A write goes where the settings say that the relay listens, though it runs elsewhere.",
        file="mcp/relay.py",
        old='f"http://{listen}", token',
        new=f'f"http://{{{_BY_SETTINGS}}}", token',
        test="tests/integration/test_mcp_relay.py"
        "::test_a_write_goes_where_the_relay_listens_and_nobody_where_its_settings_say_hears_of_it",
    ),
    Fault(
        what="The same key in two meshes claims one step for two agents.",
        file="mcp/parts.py",
        old='keys.home_id()}", self._scope(place), key)',
        new='keys.home_id()}", "", key)',
        test=f"{_UNIT}/test_work.py::test_the_same_key_in_two_meshes_is_two_claims_of_one_ledger",
    ),
    Fault(
        what="The same key in two homes claims one step for two agents.",
        file="mcp/parts.py",
        old='f"{tool} {await self.keys.home_id()}"',
        new="tool",
        test=f"{_UNIT}/test_work.py::test_the_same_key_in_two_homes_is_two_claims_of_one_ledger",
    ),
    Fault(
        what="A home forgets which one it is, and does not find what it claimed before a crash.",
        file="mcp/keys.py",
        old="Call(HOME, HOME, HOME, {})",
        new="Call(HOME, HOME, self._world.ids.ulid(), {})",
        test=f"{_UNIT}/test_keys.py::test_a_home_keeps_the_id_that_it_made_and_another_home_has_another",
    ),
    Fault(
        what="A mesh that has the name of one that was left is answered what was done in that one.",
        file="mcp/mesh.py",
        old="return load_membership(place.sock.parent).mesh_id",
        new="return place.slug",
        test=f"{_MESH}::test_a_mesh_of_the_same_name_as_one_that_was_left_shares_no_key_with_it",
    ),
    Fault(
        what="A key of a ledger is another one as soon as a mesh was joined.",
        file="mcp/parts.py",
        old="return self.daemon.mesh_id if place is None else f\"{place}:{self.mesh or ''}\"",
        new="try:\n            return self.daemon.mesh_id\n        except Exception:\n            return place",
        test=f"{_UNIT}/test_work.py::test_a_claim_is_made_once_for_a_key_though_a_mesh_was_joined_meanwhile",
    ),
    Fault(
        what="Who asks again for a claim is not told that the work may be done by now.",
        file="mcp/work.py",
        old="said=LEASED_BEFORE if claimed.replayed else claimed.said,",
        new="",
        test=f"{_UNIT}/test_work.py::test_a_step_is_claimed_once_for_a_key_and_completed_once",
    ),
    Fault(
        what="Ledgers of the same name in two folders are one, so that work is called done which nobody did.",
        file="mcp/work.py",
        old='return f"{LEDGER_MARK}{ledger_id}"',
        new='return f"{LEDGER_MARK}{asked.ledger}" if ledger_id else None',
        test=f"{_UNIT}/test_work.py::test_ledgers_of_one_name_in_two_folders_share_no_key",
    ),
    Fault(
        what="A claim is refused for how it was to be shown, and leaves a lease of which nobody knows.",
        file="mcp/work.py",
        old="asked.body_from if claimed.replayed else 0",
        new="asked.body_from",
        test=f"{_UNIT}/test_work.py::test_what_is_leased_just_now_is_shown_whatever_was_to_be_read_on",
    ),
    Fault(
        what="Who once found nothing to do finds nothing under that key, whatever came since.",
        file="mcp/keys.py",
        old="if not keeps(answer):",
        new="if answer is None:",
        test=f"{_UNIT}/test_work.py::test_who_asks_for_work_under_one_key_gets_it_when_there_is_some",
    ),
    Fault(
        what="A payload that only some can write keeps everybody from the rest of the run.",
        file="mcp/work.py",
        old='body = dump_json(step["payload"]).decode()',
        new='body = __import__("orjson").dumps(step["payload"]).decode()',
        test=f"{_UNIT}/test_work.py::test_whatever_a_ledger_takes_as_a_payload_can_be_claimed_and_failed",
    ),
    Fault(
        what="A lease is called renewed by an answer that was kept, whoever has it by now.",
        file="mcp/work.py",
        old='if asked.outcome == "renew":  # anew',
        new='if asked.outcome == "":  # anew',
        test=f"{_UNIT}/test_work.py::test_a_renewal_is_asked_for_anew_each_time",
    ),
    Fault(
        what="A key whose call may have acted is taken by another call.",
        file="mcp/keys.py",
        old='if isinstance(error, MeshError) and error.retry == "no":',
        new="if error:",
        test=f"{_UNIT}/test_keys.py::test_a_call_of_which_nobody_knows_what_became_keeps_its_key_for_itself",
    ),
    Fault(
        what="What the relay itself answers is called an answer of the hub.",
        file="mcp/relayed.py",
        old="if unquote(urlsplit(asked.path).path) in RELAYS_OWN:",
        new="if asked.path in RELAYS_OWN - {'/replay'}:",
        test=f"{_UNIT}/test_relayed.py::test_what_the_relay_answers_by_itself_is_no_write",
    ),
    Fault(
        what="A line that the SDK cannot read is never answered.",
        file="mcp/unread.py",
        old="refuse(frame) if isinstance(frame, Exception) else None",
        new="None",
        test="tests/integration/test_mcp_process.py"
        "::test_a_request_that_cannot_be_read_is_refused_and_the_next_one_served",
    ),
    Fault(
        what="What is JSON and no request is never answered.",
        file="mcp/unread.py",
        old="document, code, said = frame, types.INVALID_REQUEST, NO_REQUEST",
        new="continue",
        test="tests/integration/test_mcp_process.py::test_what_is_json_and_no_request_is_refused_under_its_id",
    ),
    Fault(
        what="A text inside of a frame is taken for the frame, and its id for that of the request.",
        file="mcp/unread.py",
        old='case {"type": "json_invalid", "input": line}:',
        new='case {"input": str() as line}:',
        test="tests/integration/test_mcp_process.py::test_what_is_json_and_no_request_is_refused_under_its_id",
    ),
    Fault(
        what="An id that is too long to be read is answered as 0.",
        file="mcp/unread.py",
        old="len(digits) <= DIGITS_MAX else None",
        new="len(digits) <= DIGITS_MAX else 0",
        test="tests/integration/test_mcp_process.py"
        "::test_what_has_no_id_that_can_be_read_is_not_answered_under_another",
    ),
    Fault(
        what="In a home that cannot be looked into no tool answers.",
        file="mcp/mesh.py",
        old="except OSError as error:",
        new="except ZeroDivisionError as error:",
        test=f"{_UNIT}/test_tools.py::test_in_a_home_that_cannot_be_looked_into_every_tool_answers",
    ),
    Fault(
        what="A relay whose place is no folder keeps everything else from being told.",
        file="mcp/relay.py",
        old="except OSError as error:",
        new="except ZeroDivisionError as error:",
        test=f"{_UNIT}/test_relayed.py::test_a_relay_whose_place_is_no_folder_is_not_known_and_the_rest_is_told",
    ),
    Fault(
        what="A meta of any length is part of every page.",
        file="mcp/messages.py",
        old="meta_length > meta_chars",
        new="meta_length < 0",
        test=f"{_MESH}::test_long_and_hostile_bodies_are_shown_as_data_and_in_pieces",
    ),
    Fault(
        what="An error that nobody thought of keeps the key to itself.",
        file="mcp/tools.py",
        old="known.extras = {**under, **known.extras}",
        new="",
        test=f"{_UNIT}/test_tools.py::test_a_fault_of_our_own_is_one_sentence_without_a_traceback",
    ),
)
