"""The runs that mends and next steps name."""

from typing import Final

WHOLE: Final = "pytest --fanout-budget"
RECORD: Final = f"{WHOLE} --fanout-mode=record"
LIVE: Final = f"{WHOLE} --fanout-mode=live"
