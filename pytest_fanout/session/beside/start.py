"""The first lines of a pytest run beside another one. Run as a file, not imported.

Its standard input is a JSON object: ``role`` (what it is there for), ``path`` (sys.path), ``argv`` (of pytest),
``jobs`` and ``answers`` (file descriptors), ``ahead_s`` (how far the clock is put forward), and what its role needs.
"""

import json
import os
import sys
import time
from typing import Any


class Line:
    """What the session finds among the plugins of its pytest: it serves another one."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.fanout_given = given


def main() -> int:
    given: dict[str, Any] = json.load(sys.stdin)
    sys.path[:] = given["path"]
    sys.argv[1:] = given["argv"]
    for descriptor in (given["jobs"], given["answers"]):
        os.set_inheritable(descriptor, False)
    os.dup2(2, 1)  # one file holds all that it says
    if given["ahead_s"]:
        import time_machine

        # Before anything of the user's is imported: a date that a module keeps is on as well. Monotonic clocks stay.
        time_machine.travel(time.time() + given["ahead_s"], tick=True).start()
    import pytest

    return int(pytest.main(given["argv"], plugins=[Line(given)]))


if __name__ == "__main__":
    sys.exit(main())
