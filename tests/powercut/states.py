"""The disks that a power cut could leave behind, made from a recorder's log.

A cut comes right before or right after a sync, at a mark, or at the end: a cut anywhere else leaves nothing that
one of these does not. What was synced is there. Of what was not, anything may be: each write whole, not at all,
torn after any byte, any of its sectors, or only the room it takes in the file; and in any order, so that a later
one may be there without an earlier one. So it is with truncations (whole or not) and with names in a directory.

A state is named `POSITION.VARIANT`: so many events of the log had happened, and the VARIANTth disk of those. With
the log and the seed that says everything. Variant 0 has nothing but what was synced; the dice throw the others.
"""

import os
import random
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from tests.powercut.recorder import (
    Created,
    Deleted,
    DirectorySynced,
    Events,
    Found,
    Log,
    Mark,
    Past,
    Payload,
    SyncBegun,
    SyncEnded,
    Truncated,
    Written,
    folder_of,
)

SECTOR_BYTES: Final = 512
FREEDOM_MAX: Final = 1_000
VARIANTS_MIN: Final = 3
TRIES_PER_VARIANT: Final = 4  # dice may fall on the same disk again
TRIES_MIN: Final = 200

Change = Written | Truncated
Naming = Created | Deleted

# What remains of one write: None for all of it, bytes from-to, or () for nothing but its room in the file.
Piece = tuple[int, int]
Kept = tuple[int, tuple[Piece, ...] | None]

Sign = tuple[tuple[str, int], ...]


class Marks(Sequence[Mark]):
    """What clients had done and been told before the cut, in order."""

    def __init__(self, marks: Sequence[Mark]) -> None:
        self._marks = marks

    def of(self, kind: str) -> set[Payload]:
        return {mark.payload for mark in self._marks if mark.kind == kind}

    def __getitem__(self, index):  # noqa: ANN001, ANN204  as a list does
        return self._marks[index]

    def __len__(self) -> int:
        return len(self._marks)


@dataclass(frozen=True, slots=True)
class State:
    number: str
    moment: str
    how: str  # what became of what was not synced
    is_torn: bool  # whether it is neither all there nor all gone
    files: dict[str, bytearray]
    marks: Marks
    sign: Sign  # the same for the same disk, among the states of one cut

    def lay_out(self, folder: Path) -> None:
        """Make the folder hold these files, and nothing else.

        Over what is there, and without pathlib: it is done thousands of times.
        """
        for below, _, names in os.walk(folder):
            for name in names:
                path = f"{below}/{name}"
                if path[len(f"{folder}/") :] not in self.files:
                    os.unlink(path)  # noqa: PTH108
        for name, data in self.files.items():
            if "/" in name:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.pwrite(descriptor, data, 0)
                os.ftruncate(descriptor, len(data))
            finally:
                os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Cut:
    position: int
    moment: str
    freedom: int  # how many disks there may be, or 1,000; one if everything is synced


class Disk:
    """What is surely on the disk, and what is only on its way there."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.bytes: defaultdict[int, bytearray] = defaultdict(bytearray)
        self.pending_names: list[Naming] = []
        self.pending: defaultdict[int, list[Change]] = defaultdict(list)
        self.marks: list[Mark] = []
        self._settled: defaultdict[int, int] = defaultdict(int)  # how many changes of a file were ever synced
        self._syncs: dict[int, tuple[int, int]] = {}  # sync -> its file, and how many changes that had before

    def happen(self, event: Events) -> None:
        match event:
            case Written() | Truncated():
                self.pending[event.file].append(event)
            case Mark():
                self.marks.append(event)
            case Past():
                self.marks += event.marks
            case SyncBegun():
                before = self._settled[event.file] + len(self.pending[event.file])
                self._syncs[event.number] = (event.file, before)
            case SyncEnded():
                file, before = self._syncs.pop(event.number)
                if not event.is_lie:
                    self._settle(file, before)
            case Created() | Deleted():
                self.pending_names.append(event)
            case DirectorySynced():
                mine = [naming for naming in self.pending_names if folder_of(naming.name) == event.folder]
                self.pending_names = [naming for naming in self.pending_names if naming not in mine]
                rename(self.names, mine)
            case Found():
                self.names[event.name] = event.file
                self.bytes[event.file] = bytearray(event.data)

    @property
    def freedom(self) -> int:
        disks = min(FREEDOM_MAX, 2 ** len(self.pending_names))
        for changes in self.pending.values():
            for change in changes:
                disks *= 2 if isinstance(change, Truncated) else len(change.data) + 2
                if disks >= FREEDOM_MAX:
                    return FREEDOM_MAX
        return disks

    def _settle(self, file: int, before: int) -> None:
        count = before - self._settled[file]
        if count > 0:  # else another sync, which began later and ended first, has done it
            for change in self.pending[file][:count]:
                apply(self.bytes[file], change, None)
            del self.pending[file][:count]
            self._settled[file] = before


def rename(names: dict[str, int], namings: Sequence[Naming]) -> None:
    for naming in namings:
        if isinstance(naming, Created):
            names[naming.name] = naming.file
        else:
            names.pop(naming.name, None)


def apply(data: bytearray, change: Change, pieces: tuple[Piece, ...] | None) -> None:
    if isinstance(change, Truncated):
        del data[change.size :]
        data.extend(bytes(change.size - len(data)))
        return
    offset, new = change.offset, change.data
    end = offset + len(new)
    if pieces is None:
        if offset > len(data):
            data.extend(bytes(offset - len(data)))
        data[offset:end] = new
        return
    reach = max((stop for _, stop in pieces), default=len(new))  # nothing of it but its room
    if offset + reach > len(data):
        data.extend(bytes(offset + reach - len(data)))
    for start, stop in pieces:
        data[offset + start : offset + stop] = new[start:stop]


# --- what a cut leaves of the changes of one file ---------------------------------------------------------


def nothing(_dice: random.Random, _changes: Sequence[Change]) -> list[Kept]:
    return []


def everything(_dice: random.Random | None = None, changes: Sequence[Change] = ()) -> list[Kept]:
    return [(index, None) for index in range(len(changes))]


def in_order(dice: random.Random, changes: Sequence[Change]) -> list[Kept]:
    """Keep the first ones; the one that was under way is torn."""
    torn = dice.randrange(len(changes))
    return [*((index, None) for index in range(torn)), *_torn(dice, torn, changes[torn])]


def any_of_them(dice: random.Random, changes: Sequence[Change]) -> list[Kept]:
    share = dice.choice((0.1, 0.5, 0.9))
    return [(index, None) for index in range(len(changes)) if dice.random() < share]


def any_of_them_torn(dice: random.Random, changes: Sequence[Change]) -> list[Kept]:
    kept: list[Kept] = []
    for index, change in enumerate(changes):
        fate = dice.random()
        if fate < 0.4:
            kept.append((index, None))
        elif fate < 0.7:
            kept += _torn(dice, index, change)
    return kept


def all_but_one(dice: random.Random, changes: Sequence[Change]) -> list[Kept]:
    lost = dice.randrange(len(changes))
    return [(index, None) for index in range(len(changes)) if index != lost]


def only_one(dice: random.Random, changes: Sequence[Change]) -> list[Kept]:
    return [(dice.randrange(len(changes)), None)]


def one_torn(dice: random.Random, changes: Sequence[Change]) -> list[Kept]:
    torn = dice.randrange(len(changes))
    kept: list[Kept] = []
    for index, change in enumerate(changes):
        kept += [(index, None)] if index != torn else _torn(dice, index, change)
    return kept


def _torn(dice: random.Random, index: int, change: Change) -> list[Kept]:
    """Keep a beginning of it, some of its sectors, or its room alone."""
    if isinstance(change, Truncated):
        return [(index, None)] if dice.random() < 0.5 else []
    size = len(change.data)
    match dice.randrange(5):
        case 0:
            return [(index, ())]
        case 1 | 2:
            return [(index, ((0, dice.randint(0, size)),))]
        case _:
            sectors = [piece for piece in _sectors(change) if dice.random() < 0.5]
            return [(index, tuple(sectors))] if sectors else []


def _sectors(change: Written) -> list[Piece]:
    """Return the pieces of it that lie in one sector of the disk each."""
    size = len(change.data)
    first = SECTOR_BYTES - change.offset % SECTOR_BYTES
    bounds = [0, *range(first, size, SECTOR_BYTES), size]
    return list(pairwise(bounds))


PARTLY: Final = (in_order, any_of_them, any_of_them_torn, all_but_one, only_one, one_torn)
ALL: Final = (nothing, everything, *PARTLY)

Fate = dict[int, tuple[Kept, ...]]  # file -> what is left of its changes
Choice = tuple[tuple[Naming, ...], Fate]


def choose(disk: Disk, dice: random.Random, variant: int) -> Choice:
    """Throw the dice for every file that has something to lose, and for the names."""
    pending = {file: changes for file, changes in disk.pending.items() if changes}
    if variant == 0:
        return (), {}
    names = tuple(naming for naming in disk.pending_names if dice.random() < 0.5)
    ways = ALL if len(pending) > 1 or disk.pending_names else ALL[1:]
    return names, {file: tuple(dice.choice(ways)(dice, changes)) for file, changes in pending.items()}


def choose_all(disk: Disk) -> Choice:
    fates = {file: tuple(everything(changes=changes)) for file, changes in disk.pending.items()}
    return tuple(disk.pending_names), fates


def build(disk: Disk, cut: Cut, variant: int, choice: Choice) -> State:
    namings, fates = choice
    names = dict(disk.names)
    rename(names, namings)
    files: dict[str, bytearray] = {}
    sign: list[tuple[str, int]] = []
    fortunes = [f"{len(namings)} of {len(disk.pending_names)} names"] if disk.pending_names else []
    for name, file in names.items():
        data, changes, kept = bytearray(disk.bytes[file]), disk.pending[file], fates.get(file, ())
        for index, pieces in kept:
            apply(data, changes[index], pieces)
        files[name] = data
        sign.append((name, zlib.crc32(data) if changes else file))
        if changes:
            torn = sum(pieces is not None for _, pieces in kept)
            fortunes.append(f"{name}: {len(kept)} of {len(changes)} changes, {torn} torn")
    how = "; ".join(fortunes) or "all is synced"
    is_torn = choice != choose_all(disk) and any((namings, *fates.values()))
    marks = Marks(tuple(disk.marks))
    return State(f"{cut.position}.{variant}", cut.moment, how, is_torn, files, marks, tuple(sign))


# --- which states there are ---------------------------------------------------------------------------------


def cuts(log: Log) -> list[Cut]:
    moments: defaultdict[int, list[str]] = defaultdict(list)
    syncs: dict[int, str] = {}
    for index, event in enumerate(log):
        match event:
            case SyncBegun():
                syncs[event.number] = f"sync {event.number} of {event.name}"
                moments[index].append(f"before {syncs[event.number]}")
            case SyncEnded():
                moments[index + 1].append(f"after {syncs[event.number]}{', a lie' if event.is_lie else ''}")
            case DirectorySynced():
                moments[index].append("before a sync of the directory")
                moments[index + 1].append("after a sync of the directory")
            case Mark():
                moments[index + 1].append(f"at the mark {event.kind} {event.payload}")
    moments[len(log)].append("at the end")
    disk, found, past = Disk(), [], 0
    for position in sorted(moments):
        for event in log[past:position]:
            disk.happen(event)
        past = position
        found.append(Cut(position, ", ".join(moments[position]), disk.freedom))
    return found


def shares(all_cuts: Sequence[Cut], seed: int, count: int) -> list[tuple[Cut, int]]:
    """Say how many states each cut gets: one where all is synced (a third of all at most), the rest elsewhere."""
    dice = random.Random(f"{seed}/shares")  # noqa: S311  no secret, here and below
    settled = [cut for cut in all_cuts if cut.freedom == 1]
    open_ = sorted((cut for cut in all_cuts if cut.freedom > 1), key=lambda cut: cut.freedom)
    settled = dice.sample(settled, min(len(settled), count // 3 if open_ else count))
    left = count - len(settled)
    if left < VARIANTS_MIN * len(open_):
        open_ = sorted(dice.sample(open_, left // VARIANTS_MIN), key=lambda cut: cut.freedom)
    given = [(cut, 1) for cut in settled]
    # Those with little to choose from come first: what they leave goes to the others.
    for index, cut in enumerate(open_):
        share = min(cut.freedom, -(-left // (len(open_) - index)))
        left -= share
        given.append((cut, share))
    return sorted(given, key=lambda each: each[0].position)


def states(log: Log, seed: int, count: int, *, since: int = 0) -> Iterator[State]:
    """Yield so many different states in the order of time; some fewer if the log does not have that many."""
    disk, past, owed = Disk(), 0, 0
    for cut, share in shares([cut for cut in cuts(log) if cut.position >= since], seed, count):
        for event in log[past : cut.position]:
            disk.happen(event)
        past = cut.position
        owed += share
        for state in _variants(disk, cut, seed, min(owed, cut.freedom)):
            owed -= 1
            yield state


def _variants(disk: Disk, cut: Cut, seed: int, count: int) -> Iterator[State]:
    seen: set[Sign] = set()
    for variant in range(max(TRIES_MIN, count * TRIES_PER_VARIANT)):
        state = _variant(disk, cut, seed, variant)
        if state.sign not in seen:
            seen.add(state.sign)
            yield state
        if len(seen) == count:
            return


def _variant(disk: Disk, cut: Cut, seed: int, variant: int) -> State:
    dice = random.Random(f"{seed}/{cut.position}/{variant}")  # noqa: S311
    return build(disk, cut, variant, choose(disk, dice, variant))


def state_of(log: Log, seed: int, number: str) -> State:
    """Return the one with this number."""
    position, variant = map(int, number.split("."))
    cut = next(cut for cut in cuts(log) if cut.position == position)
    return _variant(_disk_after(log[:position]), cut, seed, variant)


def last_state(log: Log) -> State:
    """Return the disk after a cut that never came: all that was written is there."""
    disk = _disk_after(log)
    return build(disk, Cut(len(log), "at the end", 1), 0, choose_all(disk))


def _disk_after(log: Log) -> Disk:
    disk = Disk()
    for event in log:
        disk.happen(event)
    return disk


def with_lie(log: Log, number: int) -> Log:
    """Return the log of a disk that said yes to this sync and did nothing: to the program it looks the same."""
    return [
        SyncEnded(number, is_lie=True) if isinstance(event, SyncEnded) and event.number == number else event
        for event in log
    ]
