"""From version 1 to version 2, at once or not at all; nobody writes meanwhile, and live leases stay."""

import apsw

from claudemesh.kernel.errors import MessageCassetteError
from claudemesh.ledger.stores.sqlite import chain, law
from claudemesh.ledger.stores.sqlite.audit import audit_rows
from claudemesh.ledger.stores.sqlite.file import LedgerFile


def upgrade(ledger: LedgerFile) -> tuple[int, int]:
    """Bring a ledger to the newest version; return the version it had and the one it has.

    Refused if its schema is not the law's, as every write is, and if its rows are not: the chain would vouch
    for them.
    """

    def work(connection: apsw.Connection, version: int) -> tuple[int, int]:
        if version == law.NEWEST:
            return version, version
        wrong = audit_rows(connection, version)
        if wrong:
            raise MessageCassetteError(
                f"what is in the ledger is not lawful, and is not upgraded: {'; '.join(wrong)}"
            )
        law.enact(connection, after=version, upto=law.NEWEST)
        if version < law.CHAINED_SINCE:
            chain.append_all(connection)
        return version, law.NEWEST

    return ledger.write(work, "EXCLUSIVE")
