"""HTTP stacks with network code of their own, in C, Rust or Go: nobody in Python sees what they send."""

from __future__ import annotations

from typing import Final

#: Modules whose import says that such a stack is there, as they are imported.
BLIND: Final = frozenset(
    {
        "awscrt.http",  # of the AWS SDKs that do not go through botocore
        "curl_cffi",
        "hrequests",
        "httpr",
        "impit",
        "noble_tls",
        "primp",
        "pycurl",
        "pyreqwest",
        "pyreqwest_impersonate",
        "rnet",
        "tls_client",
        "wreq",
    }
)
