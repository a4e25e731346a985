"""The end of the process when going on would break the promise.

After a failed sync nobody knows what the disk holds: the kernel may have dropped the dirty pages, and a second sync
would say "fine" of data that is gone. So nothing on that file is tried again; the process ends, and the next start
recovers from what the disk really has.
"""

import os
import sys
import time
from typing import Final, NoReturn

EXIT_STORE_FAILED: Final = 74  # EX_IOERR of sysexits.h

ANSWER_GRACE_S: Final = 1.0


def halt(reason: str) -> NoReturn:
    """Say why, leave callers a moment to hear that their outcome is unknown, and end without any clean-up.

    Clean-up is the danger here: closing the file would write to it. So no `atexit`, no destructors.
    """
    sys.stderr.write(f"claudemesh: stopping at once: {reason}\n")
    sys.stderr.flush()
    time.sleep(ANSWER_GRACE_S)
    os._exit(EXIT_STORE_FAILED)
