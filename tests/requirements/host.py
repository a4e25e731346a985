"""The faults that prove C7 of contract 9: what is declared to an agent host. Its row is in `surfaces`."""

from tests.requirements.model import Fault

_INSTALL = "tests/unit/cli/host/test_install.py"
_PLAN = "tests/unit/cli/host/test_plan.py"
_SPLICE = "tests/unit/cli/host/test_splice.py"
_HOOK = "tests/unit/cli/host/test_hook.py"

FAULTS: tuple[Fault, ...] = (
    Fault(
        what="A second install adds the hooks a second time.",
        file="cli/host/plan.py",
        old="        if not ours:\n            after, more",
        new="        if True:\n            after, more",
        test=f"{_PLAN}::test_half_of_the_hooks_is_stale_and_made_whole",
    ),
    Fault(
        what="The skill file has an agent wait for a word that no tool ever says.",
        file="cli/host/texts/SKILL.md",
        old="Until its outcome is `forwarded`",
        new="Until the relay reports it as `acked`",
        test="tests/unit/mcp/test_agents_template.py"
        "::test_the_skill_file_says_of_a_write_what_the_tool_says_and_no_word_of_the_relays_own",
    ),
    Fault(
        what="Uninstalling takes an empty object for one of ours.",
        file="cli/host/plan.py",
        old="known = ours if made.containers is None else [path for path in ours if path in made.containers]",
        new="known = ours",
        test=f"{_INSTALL}::test_uninstalling_leaves_what_was_there_and_nothing_else",
    ),
    Fault(
        what="An entry of somebody else is overwritten.",
        file="cli/host/plan.py",
        old='    if seen.state == "foreign" and not force:',
        new='    if seen.state == "foreign" and part == "skill" and not force:',
        test=f"{_PLAN}::test_an_entry_of_the_same_name_that_is_not_ours_stays_unless_it_is_forced",
    ),
    Fault(
        what="Of a name that stands twice the last one counts.",
        file="cli/host/splice.py",
        old="    if len(found) < len(members):\n",
        new="    if len(found) > len(members):\n",
        test=f"{_SPLICE}::test_what_is_not_plainly_one_object_is_refused",
    ),
    Fault(
        what="A link is followed unasked.",
        file="cli/host/files.py",
        old="        if not follow:\n",
        new="        if not follow and not real.exists():\n",
        test=f"{_INSTALL}::test_a_link_is_followed_only_if_that_is_asked_for_and_stays_a_link",
    ),
    Fault(
        what="What another program wrote meanwhile is overwritten.",
        file="cli/host/files.py",
        old="    if now != held.data:\n",
        new="    if (now is None) != (held.data is None):\n",
        test=f"{_INSTALL}::test_a_file_that_changes_between_read_and_write_is_not_overwritten",
    ),
    Fault(
        what="A project's files name a program by its path on one machine.",
        file="cli/host/places.py",
        old="        return Wanted(NAME, mesh, None, is_same_program)\n",
        new="        return Wanted(find_program(), mesh, None, is_same_program)\n",
        test=f"{_INSTALL}::test_a_users_server_is_named_by_its_path_and_a_projects_by_its_name",
    ),
    Fault(
        what="A stale entry is taken for a good one when it is read back.",
        file="cli/host/declared.py",
        old="        if not self.same_program(program, self.program):\n",
        new="        if not program:\n",
        test=f"{_INSTALL}::test_what_is_declared_is_read_back_with_what_to_do_about_it",
    ),
    Fault(
        what="A daemon whose answer is nonsense silences the others.",
        file="cli/host/hook.py",
        old="[_begin(partial(_note, found, place, question)) for place, question in enumerate(questions)]",
        new="[_begin(lambda: [_note(found, *each) for each in enumerate(questions)])]",
        test=f"{_HOOK}::test_an_answer_that_is_nonsense_takes_nothing_from_the_others",
    ),
    Fault(
        what="Daemons are asked one after the other.",
        file="cli/host/hook.py",
        old="[_begin(partial(_note, found, place, question)) for place, question in enumerate(questions)]",
        new="[_begin(lambda: [_note(found, *each) for each in enumerate(questions)])]",
        test=f"{_HOOK}::test_all_are_asked_at_once_so_that_a_slow_one_takes_no_time_from_the_next",
    ),
    Fault(
        what="A message may end the tag that a host puts around what a hook says.",
        file="kernel/texts.py",
        old='"<": "\\\\u003c", ">": "\\\\u003e"}',
        new="}",
        test=f"{_HOOK}::test_what_others_wrote_ends_neither_its_quotes_nor_its_line_nor_a_tag",
    ),
    Fault(
        what="A hook that somebody added a command to is taken for ours.",
        file="cli/host/declared.py",
        old="    return command.removesuffix(QUIETLY) == as_we_write.removesuffix(QUIETLY)\n",
        new="    return bool(as_we_write)\n",
        test=f"{_PLAN}::test_a_hook_that_does_more_than_ours_is_its_owners_and_never_called_right",
    ),
    Fault(
        what="Where several meshes are joined a server is declared for none of them.",
        file="cli/host/commands.py",
        old='session.home.meshes() if scope == "user" else []',
        new='session.home.meshes() if scope == "" else []',
        test=f"{_INSTALL}::test_with_several_meshes_the_server_is_declared_for_the_one_that_is_named",
    ),
    Fault(
        what="A server is declared for a mesh that nobody joined, and its hooks say nothing for ever.",
        file="cli/host/commands.py",
        old="has_to_be_one = len(joined) > 1 or (joined and session.mesh is not None)",
        new="has_to_be_one = len(joined) > 1",
        test=f"{_INSTALL}::test_a_mesh_that_is_not_joined_is_declared_for_nobody_once_another_one_is",
    ),
    Fault(
        what="A hook listens to its host for as long as that writes.",
        file="cli/host/hook.py",
        old="_is_ready(descriptor, deadline_ms - clock.monotonic_ms())",
        new="_is_ready(descriptor, within_ms)",
        test=f"{_HOOK}::test_a_host_that_writes_without_end_is_not_listened_to_without_end",
    ),
    Fault(
        what="A hook asks for so long that with its start a prompt waits for more than 300 ms.",
        file="cli/host/hook.py",
        old="WITHIN_MS: Final = 150",
        new="WITHIN_MS: Final = 250",
        test=f"{_HOOK}::test_asking_leaves_half_of_300_ms_to_the_start_of_the_hook",
    ),
    Fault(
        what="Doctor misses the whole of an install in a project whose AGENTS.md alone has a block of ours.",
        file="cli/doctor/checks/host.py",
        old='each.part != "agents" and each.state',
        new="each.state",
        test=f"{_INSTALL}::test_a_block_in_agents_md_is_read_back_where_it_was_put_and_missed_nowhere",
    ),
    Fault(
        what="Uninstalling from a project that is the user's home takes what the user has.",
        file="cli/host/places.py",
        old="return any(os.path.realpath(path) in theirs for",
        new="return all(os.path.realpath(path) in theirs for",
        test=f"{_INSTALL}::test_a_project_whose_files_are_the_users_is_neither_written_nor_missed",
    ),
    Fault(
        what="A receipt that is nested without end prevents an uninstall.",
        file="cli/host/receipt.py",
        old="AttributeError, RecursionError):",
        new="AttributeError):",
        test=f"{_INSTALL}::test_without_a_receipt_what_is_empty_without_us_goes",
    ),
    Fault(
        what="A home that is not UTF-8 stops an install half-way.",
        file="cli/host/commands.py",
        old="    judge_texts(wanted)\n",
        new="",
        test=f"{_INSTALL}::test_a_home_that_no_host_could_be_told_of_is_refused_before_anything_is_written",
    ),
)
