"""In the relay: what it lets in, what it takes for a secret, and what it says if the upstream does not answer."""

from tests.requirements import Fault

_ADDRESSES = "tests/unit/edge/test_addresses.py"
_DOOR = "tests/unit/edge/test_door.py"
_REPLAY = "tests/integration/test_relay_replay.py"
_POLICY = "tests/unit/edge/test_edge_policy.py"
_RELAY = "tests/integration/test_relay.py"
_SECRETS = "tests/unit/kernel/test_secrets.py"
_IMPORTS = "tests/integration/test_relay_imports.py"
_JSON = "tests/unit/wire/test_json.py"
_EXCHANGE = "tests/unit/edge/test_exchange.py"
_UPSTREAM = "tests/unit/edge/test_upstream.py"
_DESK = "tests/integration/test_relay_desk.py"

MUTANTS: tuple[Fault, ...] = (
    # --- secrets ---------------------------------------------------------------------------------------
    Fault(
        what="Only the fields at the top are looked at.",
        file="kernel/secrets.py",
        old="                stack.append(_Leaf(below, at, name, own or at.promised, bool(own)))",
        new="                stack.append(_Leaf(str(below), at, name, own or at.promised, bool(own)))",
        test=f"{_SECRETS}::test_a_field_that_promises_a_secret_and_has_one_is_found",
    ),
    Fault(
        what="A secret that is the name of a field is overlooked.",
        file="kernel/secrets.py",
        old='                stack.append(_Leaf(name, at, name, "", is_direct=False))',
        new="",
        test=f"{_SECRETS}::test_a_finding_never_shows_the_secret_even_where_it_is_a_name",
    ),
    Fault(
        what="A finding shows the secret, where it is a name.",
        file="kernel/secrets.py",
        old="_PLAIN_NAME.fullmatch(step) and find_secret_text(step) is None",
        new="_PLAIN_NAME.fullmatch(step)",
        test=f"{_SECRETS}::test_a_finding_never_shows_the_secret_even_where_it_is_a_name",
    ),
    Fault(
        what="Names are compared as they are written: apiKey is none.",
        file="kernel/secret_names.py",
        old="[word.lower() for word in _WORD.findall(name)]",
        new="name.split()",
        test=f"{_SECRETS}::test_a_field_that_promises_a_secret_and_has_one_is_found",
    ),
    Fault(
        what="Whatever is called a token is taken for one, also how many there were.",
        file="kernel/secret_names.py",
        old="before not in _OTHER_TOKENS and (not after or after in _AFTER_TOKEN)",
        new="True",
        test=f"{_SECRETS}::test_a_value_without_a_secret_passes",
    ),
    Fault(
        what="A git hash is taken for a secret.",
        file="kernel/secret_shapes.py",
        old="    if head.lower() == head or head.upper() == head or _KNOWN.match(head):\n        return False",
        new="    if len(set(head)) > 8:\n        return True",
        test=f"{_SECRETS}::test_what_only_speaks_of_secrets_is_none",
    ),
    Fault(
        what="A password in a URL is not looked for.",
        file="kernel/secret_texts.py",
        old='return "url_password"',
        new="return None",
        test=f"{_SECRETS}::test_a_credential_in_a_text_is_found",
    ),
    # --- the door --------------------------------------------------------------------------------------
    Fault(
        what="A path that goes up is refused only if it is not encoded.",
        file="edge/door.py",
        old="        path = unquote_to_bytes(path)",
        new="        break",
        test=f"{_DOOR}::test_44_a_path_that_hides_something_is_refused",
    ),
    Fault(
        what="A target with a host is judged by its path.",
        file="edge/door.py",
        old="if (target := scope.get(TARGET)) is not None:",
        new="if (target := scope.get(TARGET)) is not None and not target.startswith(b'http'):",
        test=f"{_DOOR}::test_40_a_target_with_a_host_is_not_allowed",
    ),
    Fault(
        what="The server keeps to itself that a request named a host.",
        file="asgi/server.py",
        old="                self.scope[TARGET] = self.url  #",
        new="                pass  #",
        test="tests/integration/test_http_server.py::test_40_a_target_that_names_a_host_is_told_to_the_app",
    ),
    Fault(
        what="The caller's credential is passed on.",
        file="edge/door.py",
        old='    b"user-agent",\n})',
        new='    b"user-agent",\n    b"authorization",\n})',
        test=f"{_DOOR}::test_45_only_what_does_no_harm_is_passed_on",
    ),
    Fault(
        what="What Connection names is passed on.",
        file="edge/door.py",
        old="return [header for header in kept if header[0] not in hop_by_hop] if hop_by_hop else kept",
        new="return kept",
        test=f"{_DOOR}::test_45_what_connection_names_is_dropped_too",
    ),
    Fault(
        what="A bomb is unpacked in full before it is measured.",
        file="edge/door.py",
        old="plain = unpacking.decompress(raw, bytes_max + 1)",
        new="plain = unpacking.decompress(raw, 0)",
        test=f"{_DOOR}::test_55_a_gzip_bomb_is_refused_as_soon_as_it_is_too_large",
    ),
    Fault(
        what="Of two fields with one name the last one counts.",
        file="edge/door.py",
        old="if len(members) != len(pairs):",
        new="if len(members) > len(pairs):",
        test=f"{_DOOR}::test_52_a_name_that_stands_twice_is_refused",
    ),
    Fault(
        what="A NUL in the name of a field is let in.",
        file="edge/door.py",
        old="            stack += at\n            stack += at.values()",
        new="            stack += at.values()",
        test=f"{_DOOR}::test_53_what_not_every_store_can_keep_is_unstorable",
    ),
    Fault(
        what="A million keys are built before they are counted.",
        file="edge/door.py",
        old="        if names > NAMES_MAX or values > VALUES_MAX:",
        new="        if values > VALUES_MAX * 100:",
        test=f"{_DOOR}::test_54_a_million_parts_are_refused_before_they_are_built",
    ),
    # --- the upstream ----------------------------------------------------------------------------------
    Fault(
        what="A name is resolved a second time for the connection.",
        file="edge/upstream.py",
        old="await loop.sock_connect(plug, (address, self.origin.port))",
        new="await loop.sock_connect(plug, ((await self._resolver(self.origin.host, 0))[0], self.origin.port))",
        test=f"{_ADDRESSES}::test_41_the_connection_is_made_to_the_very_address_that_was_judged",
    ),
    Fault(
        what="Only the first address of a name is judged.",
        file="edge/upstream.py",
        old="        for address in found:",
        new="        for address in found[:1]:",
        test=f"{_ADDRESSES}::test_41_one_address_that_is_not_allowed_spoils_all_of_them",
    ),
    Fault(
        what="An IPv4 address inside of an IPv6 one is not looked at.",
        file="edge/addresses.py",
        old="    inner = unwrap(address)",
        new="    inner = address",
        test=f"{_ADDRESSES}::test_40_a_name_may_not_resolve_to_what_is_not_public",
    ),
    Fault(
        what="A write whose first try may have got there is told as never sent, if the second finds nobody.",
        file="edge/upstream.py",
        old='            raise Unanswered(f"an idle connection was closed, and then: {error}") from error',
        new="            raise",
        test=f"{_UPSTREAM}::test_a_request_that_was_once_sent_is_unanswered_even_if_now_nobody_is_there",
    ),
    Fault(
        what="A write without a key is sent twice.",
        file="edge/upstream.py",
        old="            if not is_repeatable:",
        new="            if not raw:",
        test=f"{_UPSTREAM}::test_a_write_without_a_key_is_never_sent_twice",
    ),
    Fault(
        what="A fresh connection that closes without an answer is asked again.",
        file="edge/exchange.py",
        old="        elif self._is_reused:",
        new="        elif self._future is not None:",
        test=f"{_EXCHANGE}::test_an_answer_that_breaks_off_is_unanswered_and_not_asked_again",
    ),
    Fault(
        what="What is cut off is taken for the whole answer.",
        file="edge/exchange.py",
        old="if self._ends_with_connection and exc is None:",
        new="if self._status and exc is None:",
        test=f"{_EXCHANGE}::test_an_answer_that_breaks_off_is_unanswered_and_not_asked_again",
    ),
    Fault(
        what="A connection with something behind the answer serves the next request, which gets that for its own.",
        file="edge/exchange.py",
        old="if self._is_spoiled or not self._keeps_alive:",
        new="if not self._keeps_alive:",
        test=f"{_UPSTREAM}::test_a_connection_with_something_behind_the_answer_is_not_used_again",
    ),
    Fault(
        what="A redirect is passed on, for the caller to follow.",
        file="edge/exchange.py",
        old="                raise RedirectRefused",
        new="                continue",
        test=f"{_EXCHANGE}::test_42_a_redirect_is_not_followed",
    ),
    Fault(
        what="A header with a line's end is written as it is.",
        file="edge/upstream.py",
        old='if head.count(b"\\n") != lines or head.count(b"\\r") != lines or b"\\0" in head:',
        new="if not head:",
        test=f"{_UPSTREAM}::test_44_what_would_break_out_of_its_line_is_not_sent",
    ),
    Fault(
        what="The caller's credential goes along with the relay's own.",
        file="edge/upstream.py",
        old='    b"authorization",\n    b"connection",',
        new='    b"connection",',
        test=f"{_UPSTREAM}::test_a_request_is_sent_with_the_relays_own_credential_and_no_other",
    ),
    Fault(
        what="An answer of any size is read to its end.",
        file="edge/exchange.py",
        old="        if self._bytes > self._limits.answer_bytes_max:",
        new="        if self._bytes < 0:",
        test=f"{_EXCHANGE}::test_an_answer_that_is_too_large_is_cut",
    ),
    # --- JSON of others --------------------------------------------------------------------------------
    Fault(
        what="What orjson cannot write is not written.",
        file="wire/json.py",
        old='        return b"".join(_written(value))',
        new="        raise",
        test=f"{_JSON}::test_as_deep_as_it_can_be_read_it_is_written",
    ),
    Fault(
        what="An integer beyond 64 bits has no form.",
        file="wire/json.py",
        old="if isinstance(value, int):",
        new="if isinstance(value, bool):",
        test=f"{_JSON}::test_an_integer_of_any_size_keeps_every_digit",
    ),
    Fault(
        what="A text with half a character ends in an error, or in what others cannot read.",
        file="wire/json.py",
        old="        if isinstance(value, str):\n            return",
        new="        if isinstance(value, bytes):\n            return",
        test=f"{_JSON}::test_half_a_surrogate_pair_is_replaced_and_the_rest_can_be_read_by_everyone",
    ),
    Fault(
        what="A value that holds itself is written by half.",
        file="wire/json.py",
        old='            raise ValueError("a value that holds itself has no JSON form")',
        new="            return",
        test=f"{_JSON}::test_what_is_no_json_value_is_said_to_be_none",
    ),
    Fault(
        what="A write that is nested deeply cannot be given another expectation.",
        file="edge/policy.py",
        old="msgspec.Raw(dump_json(fields))",
        new="msgspec.Raw(orjson.dumps(fields))",
        test=f"{_POLICY}::test_a_write_of_any_depth_can_be_given_another_expectation",
    ),
    Fault(
        what="A summary that is nested deeply is not shown while the hub is away.",
        file="edge/reads.py",
        old="return dump_json({**shown",
        new="return orjson.dumps({**shown",
        test=f"{_RELAY}::test_a_summary_that_is_nested_deeply_is_shown_as_it_was",
    ),
    Fault(
        what="What is nested too deeply for its readers is shown to them all the same.",
        file="edge/stores/sqlite/outbox.py",
        old="        return TOO_DEEP\n",
        new="        return value\n",
        test=f"{_REPLAY}::test_a_conflict_with_what_is_nested_as_deeply_as_can_be_read_is_a_conflict_like_any_other",
    ),
    Fault(
        what="An answer that fails as nobody expected ends the relay.",
        file="outbox/sender.py",
        old="        except Exception as error:  # noqa: BLE001  an answer may",
        new="        except MeshError as error:  # an answer may",
        test=f"{_REPLAY}::test_an_envelope_whose_answer_fails_as_nobody_expected_is_tried_again_and_holds_up_no_other",
    ),
    Fault(
        what="What no relay lets in is imported.",
        file="edge/operate.py",
        old="body = door.parse_body(bytes(one.envelope.body))",
        new="body = policy.body_of(one.envelope)",
        test=f"{_IMPORTS}::test_a_body_that_the_door_would_not_let_in_is_not_imported_either",
    ),
    Fault(
        what="A relay that was given a free port tells the one that it asked for.",
        file="edge/app.py",
        old="            listen=lambda: self.listen,",
        new="            listen=lambda: settings.listen,",
        test="tests/integration/test_relay.py::test_a_relay_tells_where_it_listens_also_when_it_was_given_a_free_port",
    ),
    # --- the file of a relay that does not run ---------------------------------------------------------
    Fault(
        what="Two who look for the holder of a lock take each other for it.",
        file="runtime/home.py",
        old="_flock(descriptor, fcntl.LOCK_SH)",
        new="_flock(descriptor, fcntl.LOCK_EX)",
        test="tests/unit/runtime/test_home.py::test_who_looks_for_a_holder_is_not_taken_for_one",
    ),
    Fault(
        what="A file of an older version is looked at as if it were ours.",
        file="storage/sqlite/database.py",
        old="if plan(check_owner(connection, schema), schema.migrations):",
        new="if check_owner(connection, schema) < 0:",
        test=f"{_DESK}::test_a_file_of_an_older_version_is_brought_to_ours_before_it_is_looked_at",
    ),
    Fault(
        what="A look reads the damaged file, though another is to take its place.",
        file="edge/desk.py",
        old="        if not is_cut(path):",
        new="        if path:",
        test=f"{_DESK}::test_a_look_finishes_what_a_recovery_began",
    ),
    Fault(
        what="Of two decisions at once in the file of a relay one fails.",
        file="edge/desk.py",
        old="with InstanceLock(self._folder / LOCK, PATIENCE_S):",
        new="with InstanceLock(self._folder / LOCK, 0):",
        test=f"{_DESK}::test_of_two_decisions_at_once_the_second_waits_for_the_first",
    ),
    Fault(
        what="Who held the lock of a relay for a moment is taken for one that hangs.",
        file="cli/doctor/checks/relay.py",
        old="        desk = find_desk(folder)\n",
        new="        from claudemesh.edge import desk as edge_desk\n"
        "        edge_desk.PATIENCE_S = 0\n        desk = find_desk(folder)\n",
        test="tests/unit/cli/doctor/test_processes.py"
        "::test_a_relay_hangs_if_its_lock_stays_held_and_not_if_somebody_held_it_for_a_moment",
    ),
)
