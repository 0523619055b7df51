from __future__ import annotations


def reasons_of(case, verdicts, strays, needs):
    return ()
