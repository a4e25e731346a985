"""The document that a route table makes is true of the server that serves it, as an outsider finds by trying."""

import asyncio
import sys
from pathlib import Path

import pytest

from tests.integration.local_ipc import on_uvloop, serving


@pytest.mark.req("D14", "F7")
@on_uvloop
async def test_schemathesis_finds_nothing_that_the_document_does_not_say(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        command = [
            str(Path(sys.executable).with_name("schemathesis")),
            "run",
            f"http://127.0.0.1:{service.port}/openapi.json",
            "--header",
            f"Authorization: Bearer {service.token}",
            "--max-examples=30",
            "--seed=1",
            "--phases=examples,coverage,fuzzing",
            "--generation-database=none",
            "--no-color",
        ]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=tmp_path
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
