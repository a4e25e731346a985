"""A retention plan that was computed elsewhere. It only says where to look: the broker judges every message itself.

A line is a JSON object with mesh, history id and broker message id of a message; what else it says is for people.
The whole file is read before anything is deleted.
"""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Annotated, Final

import msgspec

from claudemesh.broker.ports import DirectoryStore
from claudemesh.broker.upkeep import Upkeep
from claudemesh.kernel.errors import InvalidRequest

Plan = dict[str, list[tuple[int, str]]]  # by the uid of the mesh; history ids and broker message ids

_NUMBER_MAX: Final = 2**63 - 1


class _Line(msgspec.Struct):
    mesh: str
    history_id: Annotated[int, msgspec.Meta(ge=1, le=_NUMBER_MAX)]
    broker_message_id: str


def read_plan(file: Path) -> Plan:
    """Read all of it, each message once and in order. Raises InvalidRequest with the number of a bad line."""
    decode = msgspec.json.Decoder(_Line).decode
    found: defaultdict[str, set[tuple[int, str]]] = defaultdict(set)
    with file.open("rb") as lines:
        for number, text in enumerate(lines, 1):
            try:
                line = decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise InvalidRequest(f"line {number} of the plan is not a message of it: {error}") from error
            found[line.mesh].add((line.history_id, line.broker_message_id))
    return {mesh: sorted(messages) for mesh, messages in found.items()}


async def execute_plan(plan: Plan, directory: DirectoryStore, upkeep: Upkeep) -> dict[str, int]:
    """Delete what the broker's own retention would delete now; return what became of the messages."""
    counts = Counter(planned=sum(map(len, plan.values())), deleted=0, refused=0, gone=0, buried=0)
    for uid, planned in plan.items():
        mesh = await directory.mesh(uid)
        counts.update({"gone": len(planned)} if mesh is None else await upkeep.sweep_planned(mesh.id, planned))
    return dict(counts)
