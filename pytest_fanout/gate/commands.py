"""The runs that mends and next steps name."""

from typing import Final

WHOLE: Final = "pytest --fanout-budget"
RECORD: Final = f"{WHOLE} --fanout-mode=record"
AGAIN: Final = "run the same command again"  # what an interrupted run is told, before its command
LIVE: Final = f"{WHOLE} --fanout-mode=live"
