"""`claudemesh doctor`: runs every check it can, mends what is safe to mend, writes a bundle for those who help.

Exit 0 only if all pass; a warning does not pass, since whoever asks wants to know before it is a failure.
"""

from typing import Any

import click

from claudemesh.cli.command import DONE, FAILED, Command, Session
from claudemesh.cli.doctor import bundle as bundles
from claudemesh.cli.doctor.checks import ALL
from claudemesh.cli.doctor.model import Report
from claudemesh.cli.doctor.rendering import render
from claudemesh.cli.doctor.runner import explain, run, run_and_fix
from claudemesh.cli.doctor.scene import Scene
from claudemesh.cli.render import escape
from claudemesh.kernel.errors import MeshError
from claudemesh.runtime.clock import SystemClock
from claudemesh.runtime.environment import read_environment


@click.command(cls=Command)
@click.option("--fix", is_flag=True, help="Mend what is safe to mend, and check again.")
@click.option(
    "--bundle",
    is_flag=False,
    flag_value="",
    default=None,
    metavar="[PATH]",
    help="Write a support bundle without secrets. [default: doctor-TIME.tar.gz in the home]",
)
@click.pass_obj
def doctor(session: Session, *, fix: bool, bundle: str | None) -> int:
    """Say what is wrong on this machine, and the command that mends it. Exit 0 only if all pass."""
    mesh = _meant(session)
    environment, clock = read_environment(), SystemClock()

    def make_scene() -> Scene:
        return Scene(session.surroundings, environment, clock, mesh)

    with session.waiting("looking at this machine", len(ALL)) as shown:
        report = run_and_fix(make_scene, ALL, shown.reach) if fix else Report(run(make_scene(), ALL, shown.reach))
        written, trouble = _write(make_scene(), report, bundle)
    document: dict[str, Any] = {**report.document(), "bundle": written, "bundle_error": trouble}
    document["ok"] = report.ok and trouble is None
    told = [f"the bundle is {escape(written)}: look at it before you send it"] if written else []
    session.out.document(document, [*render(session.out, report), *told])
    if trouble:
        session.out.say(f"no bundle was written: {trouble}")
    return DONE if document["ok"] else FAILED


def _write(scene: Scene, report: Report, asked: str | None) -> tuple[str | None, str | None]:
    """Write the bundle if one is asked for; return where it is, or why it is not."""
    if asked is None:
        return None, None
    path = bundles.choose_path(scene, asked)
    try:
        if not asked:
            scene.home.ensure()
        bundles.write(path, scene, report)
    except (MeshError, OSError) as error:
        return None, f"{path}: {explain(error)}"
    return str(path), None


def _meant(session: Session) -> str | None:
    """Return the one mesh to look at, if one is named; it may be damaged, but must be there."""
    asked = session.mesh or session.surroundings.mesh
    if asked is not None and not session.home.mesh_dir(asked).exists():
        return session.slug  # which refuses it, naming those that are joined
    return asked
