"""The gateway: a counting proxy on loopback for agents in other processes and languages.

Its server and client libraries are an extra (``pip install 'pytest-fanout[gateway]'``); they are imported on its own
thread, and only when it is first used.
"""

from pytest_fanout.meter.gateway.gateway import VARIABLE, Gateway

__all__ = ["VARIABLE", "Gateway"]
