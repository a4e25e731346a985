"""The end of the process when going on would break the promise.

After a failed sync nobody knows what the disk holds: the kernel may have dropped the dirty pages, and a second sync
would say "fine" of data that is gone. So nothing on that file is tried again; the process ends, and the next start
recovers from what the disk really has.
"""

import atexit
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn

EXIT_STORE_FAILED: Final = 74  # EX_IOERR of sysexits.h

ANSWER_GRACE_S: Final = 1.0


def halt(reason: str, last_words: Callable[[], None]) -> NoReturn:
    """Say why, let `last_words` tell callers that their outcome is unknown, and end without any clean-up.

    Clean-up is the danger here: closing the file would write to it. So no destructors, not even if the main thread
    ends first. And nothing may stand in the way: standard error may be closed, full or on the disk that failed.
    """
    try:
        atexit.register(os._exit, EXIT_STORE_FAILED)
        for words in (lambda: _say(reason), last_words):  # each in a thread: neither may keep us waiting
            threading.Thread(target=words, daemon=True).start()
        time.sleep(ANSWER_GRACE_S)
    finally:
        os._exit(EXIT_STORE_FAILED)


def _say(reason: str) -> None:
    with suppress(OSError):
        os.write(2, f"claudemesh: stopping at once: {reason}\n".encode(errors="replace"))
