"""The faults that prove C5 of contract 9: doctor and top. Its row is in `surfaces`."""

from tests.requirements.model import Fault

_PICTURE = "tests/unit/cli/top/test_picture.py"
_TABLES = "tests/unit/cli/top/test_tables.py"
_APP = "tests/unit/cli/top/test_app.py"
_COMMAND = "tests/unit/cli/top/test_command.py"

_TOP: tuple[Fault, ...] = (
    Fault(
        what="A name that looks like markup is read as markup.",
        file="cli/top/app.py",
        old="rows.add_row(*(Plain(cell) for cell in row.cells))",
        new="rows.add_row(*row.cells)",
        test=f"{_APP}::test_names_that_look_like_markup_are_shown_as_they_are_and_do_nothing",
    ),
    Fault(
        what="The evidence of a trace is read as markup.",
        file="cli/top/app.py",
        old='yield Static(self._text, id="text", markup=False)',
        new='yield Static(self._text, id="text")',
        test=f"{_APP}::test_enter_shows_the_trace_of_a_dead_row_and_its_texts_are_inert",
    ),
    Fault(
        what="While the daemon is away nothing is shown any more.",
        file="cli/top/picture.py",
        old="if last is None or not new.is_away:",
        new="if new.is_away or not new.is_away:",
        test=f"{_PICTURE}::test_while_the_daemon_is_away_what_was_last_known_of_it_stays_and_the_rest_is_new",
    ),
    Fault(
        what="A daemon that hangs holds up the keys.",
        file="cli/top/app.py",
        old="            self._asking.put(self._looker.look, self._take)",
        new="            self._take(self._looker.look())",
        test=f"{_APP}::test_a_daemon_that_hangs_holds_up_no_key_and_is_asked_once_at_a_time",
    ),
    Fault(
        what="After a restart of the daemon rates are negative.",
        file="cli/top/picture.py",
        old="                self._looks.clear()",
        new="                pass",
        test=f"{_PICTURE}::test_a_daemon_that_was_started_anew_is_not_counted_backwards",
    ),
    Fault(
        what="Escapes of a peer's profile reach the terminal.",
        file="cli/top/tables.py",
        old='escape(peer.get("about") or "")',
        new='str(peer.get("about") or "")',
        test=f"{_TABLES}::test_what_others_wrote_has_no_control_characters_in_any_table",
    ),
    Fault(
        what="Without a daemon a snapshot is a success.",
        file="cli/top/command.py",
        old="            return UNREACHABLE if look.is_away else DONE\n        session",
        new="            return DONE\n        session",
        test=f"{_COMMAND}::test_without_a_daemon_the_snapshot_says_so_and_the_exit_code_too",
    ),
    Fault(
        what="Without its package the live view does not say how to get it.",
        file="cli/top/command.py",
        old="needs another package: {how_to_get('top')}",
        new="needs another package",
        test=f"{_COMMAND}::test_without_its_package_the_live_view_names_the_command_that_installs_it",
    ),
)

_DOCTOR = "tests/unit/cli/doctor"

_DOCTORED: tuple[Fault, ...] = (
    Fault(
        what="A key that others can read is passed over.",
        file="cli/doctor/checks/home.py",
        old='self.path.suffix != ".toml" and bool(self.status.st_mode & OTHERS)',
        new='self.path.suffix != ".toml" and bool(self.status.st_mode & 0o002)',
        test=f"{_DOCTOR}/test_home.py::test_what_others_can_read_is_named_and_closed_and_settings_may_be_read",
    ),
    Fault(
        what="A torn page is taken for a sound one.",
        file="storage/sqlite/inspect.py",
        old='return [] if found == ["ok"] else found',
        new="return []",
        test=f"{_DOCTOR}/test_stores.py::test_a_torn_page_fails_its_own_database_and_no_other",
    ),
    Fault(
        what="A warning passes.",
        file="cli/doctor/model.py",
        old="PASSING: Final = frozenset({Verdict.OK, Verdict.NOT_APPLICABLE})",
        new="PASSING: Final = frozenset({Verdict.OK, Verdict.WARN, Verdict.NOT_APPLICABLE})",
        test=f"{_DOCTOR}/test_command.py::test_a_warning_does_not_pass_and_what_is_not_there_does",
    ),
    Fault(
        what="A check that raises is as good as one that found nothing.",
        file="cli/doctor/runner.py",
        old="    except Exception as error:",
        new="    except OSError as error:",
        test=f"{_DOCTOR}/test_runner.py::test_a_check_that_raises_fails_by_its_class_and_the_others_run",
    ),
    Fault(
        what="A repair is believed by its own word.",
        file="cli/doctor/runner.py",
        old="return Report(run(make_scene(), checks, progress) if fixed else results, fixed)",
        new="return Report([one for one in results if not one.finding.repairs], fixed)",
        test=f"{_DOCTOR}/test_runner.py::test_the_same_checks_judge_what_was_mended",
    ),
    Fault(
        what="What a killed process left is removed without its lock, and so from one that just started.",
        file="cli/doctor/checks/processes.py",
        old='    with InstanceLock(folder / "pid"):\n        if found is not None and _listener',
        new="    with suppress(FileNotFoundError):\n        if found is not None and _listener",
        test=f"{_DOCTOR}/test_processes.py::"
        "test_a_repair_that_comes_too_late_takes_nothing_from_a_daemon_that_started_meanwhile",
    ),
    Fault(
        what="A clock that is ahead of the broker's is never wrong.",
        file="cli/doctor/checks/broker.py",
        old="if abs(found.skew_ms) > CLOCK_SKEW_MAX_MS:",
        new="if found.skew_ms > CLOCK_SKEW_MAX_MS:",
        test=f"{_DOCTOR}/test_broker.py::test_a_clock_that_the_broker_would_refuse_fails",
    ),
    Fault(
        what="The broker of `up` is to be started by a command that leaves `up` without a port.",
        file="cli/doctor/checks/broker.py",
        old='words = "up" if of_up is not None',
        new='words = "up" if of_up is None',
        test=f"{_DOCTOR}/test_broker.py::test_what_up_had_started_is_started_by_it_again_broker_and_daemon_at_once",
    ),
    Fault(
        what="A misspelt CLAUDEMESH_HOME is a second home, and doctor finds nothing wrong.",
        file="cli/settings_files.py",
        old="if name.startswith(PREFIX) and name not in known",
        new='if name.startswith(PREFIX) and "__" in name and name not in known',
        test=f"{_DOCTOR}/test_identity_and_settings.py::"
        "test_a_variable_that_nothing_hears_is_told_with_the_nearest",
    ),
    Fault(
        what="Names of files that are not ours leave in a bundle.",
        file="cli/doctor/redaction.py",
        old='_PATH.sub("(path)", text)',
        new="text",
        test=f"{_DOCTOR}/test_bundle.py::test_no_secret_is_in_any_byte_of_a_bundle",
    ),
    Fault(
        what="A password with a slash in it leaves in a bundle: it is taken for a path.",
        file="cli/settings_files.py",
        old='f"{at}{host}") if colon else None',
        new='f"{at}{host}") if colon and "/" not in password else None',
        test=f"{_DOCTOR}/test_bundle.py::test_a_password_that_nobody_escaped_does_not_leave",
    ),
    Fault(
        what="Only a text is looked at, and not the name that it stands under: a short password leaves.",
        file="cli/doctor/redaction.py",
        old="if not is_declared and _gives_away(str(name), one)",
        new="if is_declared and _gives_away(str(name), one)",
        test=f"{_DOCTOR}/test_bundle.py::test_what_a_fields_name_gives_away_does_not_leave_and_what_helps_does",
    ),
    Fault(
        what="A count of tokens is taken for a token.",
        file="cli/doctor/redaction.py",
        old='== ["tokens"] and not isinstance(value, int | float)',
        new='== ["tokens"]',
        test=f"{_DOCTOR}/test_bundle.py::test_what_a_fields_name_gives_away_does_not_leave_and_what_helps_does",
    ),
    Fault(
        what="The password of an address that lost a slash is shown.",
        file="cli/settings_files.py",
        old="    if not mark:\n",
        new="    if not mark:\n        return None\n    if not mark:\n",
        test=f"{_DOCTOR}/test_bundle.py::test_what_a_fields_name_gives_away_does_not_leave_and_what_helps_does",
    ),
    Fault(
        what="Of a password only all up to the last @ of its URL is known.",
        file="cli/doctor/redaction.py",
        old="for count in range(1, len(parts) + 1))",
        new="for count in range(len(parts), len(parts) + 1))",
        test=f"{_DOCTOR}/test_bundle.py"
        "::test_a_password_is_known_word_for_word_with_and_without_what_follows_its_first_at",
    ),
    Fault(
        what="Whatever begins as a directory of ours is closed.",
        file="runtime/home.py",
        old="    return path.name in _FOLDERS or ",
        new="    return path.name.startswith(tuple(_FOLDERS)) or ",
        test=f"{_DOCTOR}/test_home.py::test_a_directory_whose_name_only_begins_as_one_of_ours_is_left_alone",
    ),
    Fault(
        what="A half-written file of somebody else's is removed.",
        file="runtime/home.py",
        old="    return found is not None and is_ours(path.with_name(found[1]))",
        new="    return found is not None",
        test=f"{_DOCTOR}/test_home.py::test_a_directory_whose_name_only_begins_as_one_of_ours_is_left_alone",
    ),
    Fault(
        what="A log that cannot be read prevents the bundle.",
        file="cli/doctor/bundle.py",
        old="    except OSError:\n        return\n",
        new="    except FileNotFoundError:\n        return\n",
        test=f"{_DOCTOR}/test_command.py::test_whatever_is_in_the_place_of_a_file_every_check_is_run",
    ),
    Fault(
        what="What stands in the place of a log stays open.",
        file="cli/doctor/bundle.py",
        old="        os.close(descriptor)\n",
        new="        pass\n",
        test=f"{_DOCTOR}/test_bundle.py::test_a_pipe_in_the_place_of_a_log_has_no_lines_and_is_let_go_of",
    ),
    Fault(
        what="A line of a log that is nested without end prevents the bundle.",
        file="cli/doctor/bundle.py",
        old="        except (ValueError, RecursionError):",
        new="        except ValueError:",
        test=f"{_DOCTOR}/test_command.py::test_whatever_is_in_the_place_of_a_file_every_check_is_run",
    ),
    Fault(
        what="A key's file that is nested without end prevents the bundle.",
        file="cli/doctor/redaction.py",
        old="        except (ValueError, RecursionError):",
        new="        except ValueError:",
        test=f"{_DOCTOR}/test_command.py::test_whatever_is_in_the_place_of_a_file_every_check_is_run",
    ),
    Fault(
        what="A bundle replaces what is there.",
        file="cli/doctor/bundle.py",
        old="os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW",
        new="os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW",
        test=f"{_DOCTOR}/test_command.py::test_a_bundle_is_its_owners_alone_and_replaces_nothing",
    ),
)

FAULTS: tuple[Fault, ...] = (*_DOCTORED, *_TOP)
