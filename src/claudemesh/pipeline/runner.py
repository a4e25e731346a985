"""Runs jobs on a cut.

    <lake>/gold/<job>/cut=<n>/_done.json   the summary, written last: without it a run was cut short

A job is pure; what becomes of its frames is in `outputs`.
"""

import shutil
from collections.abc import Iterable
from typing import Final

import msgspec

from claudemesh.kernel.errors import NotFound
from claudemesh.pipeline.lake import Cut, make_private, sync_tree, write_durably
from claudemesh.pipeline.outputs import Job, Result, Run
from claudemesh.pipeline.registry import JOBS

DONE: Final = "_done.json"


def choose_jobs(name: str, cut: Cut, newest: int) -> tuple[list[Job], dict[str, str]]:
    """Return the job, or with `all` every one that can be run, and why the others cannot."""
    wanted = JOBS.values() if name == "all" else [JOBS[name]]
    objections = {job.name: objection for job in wanted if (objection := _object(job, cut, newest))}
    if name in objections:
        raise NotFound(f"{name}: {objections[name]}")
    return [job for job in wanted if job.name not in objections], objections


def _object(job: Job, cut: Cut, newest: int) -> str | None:
    if not any(map(job.reads, cut.sources.values())):
        how = " that was copied with --bodies" if job.needs_bodies else ""
        return f"cut {cut.number} has no store of the kind {job.kind}{how}"
    if job.is_standing and cut.number < newest:
        return f"cut {cut.number} is not the newest, and would take the place of what was made of that"
    return None


def run_jobs(run: Run, jobs: Iterable[Job]) -> list[Result]:
    chosen = list(jobs)
    run.progress.expect(sum(len(run.sources(job)) for job in chosen))
    return [run_job(run, job) for job in chosen]


def run_job(run: Run, job: Job) -> Result:
    done = run.lake.gold(job.name, run.cut.number) / DONE
    done.unlink(missing_ok=True)
    shutil.rmtree(done.parent, ignore_errors=True)  # an earlier run may have given what this one does not
    result = Result(job.name, run.cut.number)
    for source in run.sources(job):
        with run.progress.stage(f"{job.name} of {source}"):
            job.publish(run, job, source, result)
    if not result.mismatches:
        make_private(done.parent)  # a job may have put all that it gives elsewhere
        sync_tree(done.parent)
        write_durably(done, msgspec.json.format(msgspec.json.encode(result)))
    return result
