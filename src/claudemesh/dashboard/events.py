"""What happens at the dashboard, for logs."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class DashboardOpened:
    """Somebody came with a code that was good."""

    name: ClassVar[str] = "dashboard.opened"
