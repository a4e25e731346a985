"""Contract 8: the data pipeline."""

from tests.requirements.model import Requirement

REQUIREMENTS: tuple[Requirement, ...] = (
    Requirement("S1", "Ingest is incremental and exactly once across crashes.", "contract 8", "planned"),
    Requirement("S2", "Each job rebuilds or measures its subject from stored data.", "contract 8", "planned"),
    Requirement("S3", "The history checker proves the promise or shows violations.", "contract 8", "planned"),
    Requirement("S4", "Pipeline commands show progress and write their reports.", "contract 8", "planned"),
    Requirement("S5", "Jobs are expressions and SQL; a Python UDF is the exception.", "contract 8", "planned"),
    Requirement("S6", "The jobs also run on a cluster of several processes.", "contract 8", "planned"),
)
