"""Runs jobs on a cut.

    <lake>/gold/<job>/cut=<n>/_done.json   the summary, written last: without it a run was cut short

A job is pure; what becomes of its frames is in `outputs`.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from claudemesh.kernel.errors import NotFound
from claudemesh.pipeline.lake import Cut, make_private, sync_tree, write_durably
from claudemesh.pipeline.outputs import Job, Result, Run
from claudemesh.pipeline.registry import JOBS

DONE: Final = "_done.json"


def choose_jobs(name: str, cut: Cut) -> tuple[list[Job], dict[str, str]]:
    """Return the job, or with `all` every one that has something to read, and why the others have not."""
    wanted = JOBS.values() if name == "all" else [JOBS[name]]
    chosen = [job for job in wanted if any(map(job.reads, cut.sources.values()))]
    left_out = {job.name: _say_missing(job, cut) for job in wanted if job not in chosen}
    if name in left_out:
        raise NotFound(f"{name}: {left_out[name]}")
    return chosen, left_out


def _say_missing(job: Job, cut: Cut) -> str:
    how = " that was copied with --bodies" if job.needs_bodies else ""
    return f"cut {cut.number} has no store of the kind {job.kind}{how}"


def run_jobs(run: Run, jobs: Iterable[Job]) -> list[Result]:
    chosen = list(jobs)
    run.progress.expect(sum(len(run.sources(job)) for job in chosen))
    return [run_job(run, job) for job in chosen]


def run_job(run: Run, job: Job) -> Result:
    done = run.lake.gold(job.name, run.cut.number) / DONE
    done.unlink(missing_ok=True)
    result = Result(job.name, run.cut.number)
    for source in run.sources(job):
        with run.progress.stage(f"{job.name} of {source}"):
            job.publish(run, job, source, result)
    if not result.mismatches:
        make_private(done.parent)  # a job may have put all that it gives elsewhere
        sync_tree(done.parent)
        write_durably(done, msgspec.json.format(msgspec.json.encode(result)))
    return result
