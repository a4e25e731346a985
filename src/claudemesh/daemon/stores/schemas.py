"""The version of the daemon's files, as it is shown and written beside them."""

from typing import Final

from claudemesh.daemon.stores.sqlite import inbox, outbox

SCHEMA_VERSION: Final = max(len(outbox.SCHEMA.migrations), len(inbox.SCHEMA.migrations))
