"""The first lines of a process that proves recordings. Run as a file, not imported.

Its standard input is a JSON object: ``path`` (sys.path), ``argv`` (of pytest), ``jobs`` and ``answers`` (file
descriptors), ``ahead_s`` (how far the clock is put forward).
"""

import json
import os
import sys
import time
from typing import Any


class Line:
    """What the session finds among the plugins of its pytest: this run proves recordings."""

    def __init__(self, jobs: int, answers: int) -> None:
        self.fanout_proof_line = (jobs, answers)


def main() -> int:
    given: dict[str, Any] = json.load(sys.stdin)
    sys.path[:] = given["path"]
    sys.argv[1:] = given["argv"]
    for descriptor in (given["jobs"], given["answers"]):
        os.set_inheritable(descriptor, False)
    os.dup2(2, 1)  # one file holds all that it says
    import time_machine

    # Before anything of the user's is imported: a date that a module keeps is a day on as well. Monotonic clocks stay.
    time_machine.travel(time.time() + given["ahead_s"], tick=True).start()
    import pytest

    return int(pytest.main(given["argv"], plugins=[Line(given["jobs"], given["answers"])]))


if __name__ == "__main__":
    sys.exit(main())
