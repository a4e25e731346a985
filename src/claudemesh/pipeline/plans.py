"""The plan of retention as lines, for the broker to read: Spark deletes nothing."""

from shlex import quote
from typing import Final

import msgspec

from claudemesh.pipeline.outputs import Job, Result, Run, publish, read_output

PLAN: Final = "plan.jsonl"


def publish_plan(run: Run, job: Job, source: str, result: Result) -> None:
    publish(run, job, source, result)
    file = run.place(job.name, source) / PLAN
    with file.open("wb") as lines:
        for batch in read_output(run, job, source, "plan").to_batches():
            lines.writelines(msgspec.json.encode(row) + b"\n" for row in batch.to_pylist())
    result.sources[source] |= {"plan": str(file), "execute": f"claudemesh broker sweep --plan {quote(str(file))}"}
