"""A process of its own that ends process groups whose starter has died, however it died. Run as a file, not imported.

It reads ``+GROUP`` and ``-GROUP`` lines; at the end of its input it kills each group that was added and not taken back.
"""

import os
import signal
import sys


def main() -> None:
    groups: set[int] = set()
    for line in sys.stdin:
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except OSError:
            continue


if __name__ == "__main__":
    main()
