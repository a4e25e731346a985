"""Three prompts, each with how things stand when it is asked for: start, hand over (which also closes), triage.

Facts come from the stores; what others wrote is not in them, only how much of it waits.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from claudemesh.kernel.errors import InvalidRequest
from claudemesh.kernel.texts import escape
from claudemesh.mcp import arguments, places, results
from claudemesh.mcp.parts import Parts

ARGUMENT_CHARS_MAX: Final = 2_000


@dataclass(frozen=True, slots=True)
class Argument:
    name: str
    description: str
    is_required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    name: str
    title: str
    description: str
    arguments: tuple[Argument, ...]
    render: Callable[[Parts, Mapping[str, str]], Awaitable[str]]


async def render(parts: Parts, prompt: Prompt, given: Mapping[str, str]) -> str:
    known = {argument.name for argument in prompt.arguments}
    missing = [one.name for one in prompt.arguments if one.is_required and not given.get(one.name)]
    if set(given) - known or missing:
        raise InvalidRequest(f"{prompt.name} takes {', '.join(sorted(known)) or 'nothing'}; missing: {missing}")
    if any(len(value) > ARGUMENT_CHARS_MAX for value in given.values()):
        raise InvalidRequest(f"an argument has at most {ARGUMENT_CHARS_MAX} characters")
    return await prompt.render(parts, {name: escape(value, lines=True) for name, value in given.items()})


async def _stand(parts: Parts) -> tuple[results.Status, list[str]]:
    status = await places.status(parts, arguments.Status())
    unread = await parts.daemon.unread()
    facts = [
        f"- daemon: {escape(status.daemon.said)}",
        f"- relay: {escape(status.relay.said)}",
        f"- unread messages: {'not known' if unread is None else unread}",
    ]
    return status, facts


# --- start ---------------------------------------------------------------------------------------------


async def _start(parts: Parts, given: Mapping[str, str]) -> str:
    _, facts = await _stand(parts)
    return "\n".join((
        "You begin a session on the mesh. This is how things stand:",
        *facts,
        *([f"- the task: {given['task']}"] if given.get("task") else []),
        "",
        "1. Read what is unread with inbox. " + results.UNTRUSTED,
        "2. See who is there with peers. If somebody works on the same thing, ask them before you begin.",
        "3. Take work with claim, if it is given out by a queue or a ledger; keep its id and token.",
        "4. Write progress to the hub with write, and nowhere else. Look at outcome: only forwarded is done.",
        "5. Give every call that changes something an idempotency_key of your own.",
        "   When you do not know what became of a call, repeat it under its key.",
        "When you stop, use the prompt hand_over_work.",
    ))  # fmt: skip


# --- hand over, which also closes a session ------------------------------------------------------------


async def _hand_over(parts: Parts, given: Mapping[str, str]) -> str:
    status, facts = await _stand(parts)
    to = given.get("to")
    if status.nothing_waits:
        verdict = ["Nothing of this mesh or of the relay waits. What you finished there may be reported as done."]
    else:
        verdict = [
            "NOT EVERYTHING HAS HAPPENED. Do not report the work as done while this is so:",
            *(f"- {escape(reason)}" for reason in status.why),
            "Report what waits as waiting, with its id. Start nothing that depends on it: no deployment,",
            "no message that says it is done, no next step.",
        ]
    return "\n".join((
        "You hand over your work, or close the session. This is how things stand:",
        *facts,
        "",
        *verdict,
        "",
        "1. Complete what you claimed: done if it is, failed or give_back if it is not.",
        "   lease_lost means that it is no longer yours, and not done by you.",
        "2. Write the last progress with write. If its outcome is queued, say so in the hand-over.",
        "3. Call status again. Only if nothing_waits is true may you say that the work is done.",
        f"4. {_letter(to)} Say what is done, what waits (with ids), what is next, and where it is.",
        *([f"   What you wanted to say: {given['summary']}"] if given.get("summary") else []),
        "5. Mark with ack what you have dealt with, and leave unread what the next one has to see.",
    ))  # fmt: skip


def _letter(to: str | None) -> str:
    if to:
        return f"Send the hand-over to {to}, with wait=accepted; queued is not handed over."
    return "Send the hand-over to whoever goes on, if anybody does, with wait=accepted; queued is not handed over."


# --- dead letters --------------------------------------------------------------------------------------


async def _triage(parts: Parts, _: Mapping[str, str]) -> str:
    status, facts = await _stand(parts)
    dead = [
        f"- {escape(one.id)} to {one.to}, of {one.enqueued_at}: {one.reason or 'no reason was kept'}"
        for one in status.dead_letters
    ]
    more = ["- and more: status with its next_cursor"] if status.next_cursor else []
    return "\n".join((
        "Look through what died in the outbox. This is how things stand:",
        *facts,
        "",
        *(["Dead letters:", *dead, *more] if dead else ["There are no dead letters in the outbox."]),
        "",
        "For each of them, one at a time:",
        "1. trace it, and read why it died.",
        "2. If it should still be sent, requeue it, changed if that is why it died. If it had arrived, nothing is",
        "   sent again, and you are told so. Use force only if a second message would do no harm.",
        "3. If it should not, leave it, and say whom it was for and what they therefore never got.",
        "Then look at conflicts of the relay: show both values to whoever can decide, and decide none by guessing.",
    ))  # fmt: skip


PROMPTS: Final = {
    prompt.name: prompt
    for prompt in (
        Prompt(
            name="start_session",
            title="Start a session",
            description="What to look at first, with how things stand now.",
            arguments=(Argument("task", "What the session is for."),),
            render=_start,
        ),
        Prompt(
            name="hand_over_work",
            title="Hand over work, or close the session",
            description="Checks daemon and relay first: work is not done while anything of it is queued.",
            arguments=(
                Argument("to", "Who goes on: a member, #topic or queue:NAME."),
                Argument("summary", "What you want to say."),
            ),
            render=_hand_over,
        ),
        Prompt(
            name="triage_dead_letters",
            title="Triage dead letters",
            description="What died in the outbox, and what to do with each.",
            arguments=(),
            render=_triage,
        ),
    )
}
