"""A stage for each test, with whatever app it wants."""

from collections.abc import Callable, Iterator

import pytest

from tests.unit.idempotency.stage import Stage


@pytest.fixture
def staged() -> Iterator[Callable[..., Stage]]:
    stages: list[Stage] = []

    def build(*args: object, **settings: object) -> Stage:
        stages.append(Stage(*args, **settings))  # type: ignore[arg-type]
        return stages[-1]

    yield build
    for stage in stages:
        stage.close()
