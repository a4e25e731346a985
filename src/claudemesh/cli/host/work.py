"""Installing and uninstalling: plan everything, check everything, then write file after file.

All files are read and judged before the first is written, so whatever is wrong with any of them stops all. A
failure after that names what was written; every step stands for itself, so a second run does the rest.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from claudemesh.cli.host.blocks import DamagedBlockError
from claudemesh.cli.host.declared import Wanted
from claudemesh.cli.host.files import Held, judge_unchanged, missing_folders, read, refused, write
from claudemesh.cli.host.places import Place
from claudemesh.cli.host.plan import PARTS, WHAT, Edit, ForeignError, Made, Part, drop, look, put
from claudemesh.cli.host.receipt import Receipt, load_receipt, store_receipt
from claudemesh.cli.host.splice import NotUnderstoodError
from claudemesh.kernel.errors import HostFileRefused
from claudemesh.runtime.home import Home

Action = Literal["create", "change", "remove", "keep"]

_REASONS: Final = {
    NotUnderstoodError: "not_understood",
    DamagedBlockError: "not_understood",
    ForeignError: "foreign_entry",
}


@dataclass(frozen=True, slots=True)
class Step:
    """What is to become of one file."""

    part: Part
    held: Held
    edit: Edit
    was_ours: bool = False  # something of ours stood there already
    is_removal: bool = False

    @property
    def action(self) -> Action:
        if self.edit.text == self.held.text:
            return "keep"
        if self.held.data is None:
            return "create"
        return "remove" if self.edit.text is None else "change"

    @property
    def left(self) -> bool:
        """Say whether an uninstall leaves a file that has our name and was changed by somebody."""
        return self.is_removal and self.part == "skill" and self.edit.text is not None


def plan_install(place: Place, wanted: Wanted, parts: Sequence[Part], *, force: bool, follow: bool) -> list[Step]:
    def step(part: Part, held: Held) -> Step:
        edit = put(part, held.text, wanted, force=force)
        return Step(part, held, edit, look(part, held.text, wanted).state in ("ok", "stale"))

    return _plan(place, parts, step, follow=follow)


def plan_uninstall(place: Place, receipt: Receipt, *, force: bool, follow: bool) -> list[Step]:
    def step(part: Part, held: Held) -> Step:
        return Step(part, held, drop(part, held.text, receipt.made(held.path), force=force), is_removal=True)

    return _plan(place, [part for part in PARTS if part in place.files][::-1], step, follow=follow)


def _plan(place: Place, parts: Sequence[Part], step: Callable[[Part, Held], Step], *, follow: bool) -> list[Step]:
    """Plan every part, or raise all that is wrong at once."""
    steps: list[Step] = []
    wrong: list[HostFileRefused] = []
    for part in parts:
        path = place.files[part]
        try:
            steps.append(step(part, read(path, place.root, follow=follow, private=place.scope == "user")))
        except HostFileRefused as error:
            wrong.append(error)
        except tuple(_REASONS) as error:
            force = "; --force replaces it" if isinstance(error, ForeignError) else ""
            wrong.append(refused(path, f"{error}{force}", _REASONS[type(error)]))
    if wrong:
        raise HostFileRefused(
            "; ".join(error.detail for error in wrong) + ". Nothing was written",
            path=wrong[0].extras["path"],
            reason=wrong[0].extras["reason"],
        )
    return steps


# --- doing it ----------------------------------------------------------------------------------------


def install(steps: Sequence[Step], home: Home) -> None:
    changes = [step for step in steps if step.action != "keep"]
    if not changes:
        return
    receipt = load_receipt(home)
    for step in changes:
        path = str(step.held.path)
        standing = receipt.files.get(path)
        if not step.was_ours:
            receipt.files[path] = Made(step.held.data is None, step.edit.made)
        elif standing is not None:
            receipt.files[path] = Made(standing.file, (*(standing.containers or ()), *step.edit.made))
        new = [str(folder) for folder in missing_folders(step.held.real)]
        receipt.folders += [folder for folder in new if folder not in receipt.folders]
    _judge_all(changes)
    store_receipt(home, receipt)  # first: what is written after it can be taken back exactly
    _write_all(changes)


def uninstall(steps: Sequence[Step], home: Home, receipt: Receipt) -> list[Path]:
    """Take out what is ours, and return the directories that went with it."""
    changes = [step for step in steps if step.action != "keep"]
    _judge_all(changes)
    _write_all(changes)
    gone = _remove_folders(steps, receipt)
    had = bool(receipt.files or receipt.folders)
    for step in steps:
        receipt.files.pop(str(step.held.path), None)
    receipt.folders = [folder for folder in receipt.folders if Path(folder).exists()]
    if had:
        store_receipt(home, receipt)
    return gone


def _judge_all(changes: Sequence[Step]) -> None:
    for step in changes:
        judge_unchanged(step.held)


def _write_all(changes: Sequence[Step]) -> None:
    done: list[Step] = []
    for step in changes:
        try:
            write(step.held, None if step.edit.text is None else step.edit.text.encode())
        except (HostFileRefused, OSError) as error:
            why = error.detail if isinstance(error, HostFileRefused) else f"{step.held.path}: {error.strerror}"
            written = ", ".join(str(one.held.path) for one in done) or "nothing"
            reason = error.extras["reason"] if isinstance(error, HostFileRefused) else "not_written"
            raise HostFileRefused(
                f"{why}. Written so far: {written}. The same command does the rest",
                path=str(step.held.path),
                reason=reason,
            ) from error
        done.append(step)


def _remove_folders(steps: Sequence[Step], receipt: Receipt) -> list[Path]:
    """Remove directories that were made for us and are empty; without a receipt only the one that has our name."""
    ours = {folder for step in steps for folder in step.held.real.parents if str(folder) in receipt.folders}
    ours |= {step.held.real.parent for step in steps if step.part == "skill"}
    gone: list[Path] = []
    for folder in sorted(ours, key=lambda one: len(one.parts), reverse=True):
        with suppress(OSError):
            folder.rmdir()
            gone.append(folder)
    return gone


def say_step(step: Step) -> str:
    return f"{step.action:<6}  {step.held.path}  ({WHAT[step.part]})"
