"""The forward proxy's certificate authority: made for one run, its key in memory only; and bundles that trust it."""

from __future__ import annotations

import os
import shutil
import ssl
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pytest_fanout.errors import UsageError

#: Each names a file that takes the place of a client's own roots.
BUNDLE_VARIABLES: Final = (
    "SSL_CERT_FILE",  # OpenSSL: Python's ssl and httpx, Ruby, Go on Linux, wget
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "AWS_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "HTTPLIB2_CA_CERTS",
    "CARGO_HTTP_CAINFO",
    "DENO_CERT",
    "NIX_SSL_CERT_FILE",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
)
#: Names a file that is added to a client's own roots.
EXTRA_VARIABLE: Final = "NODE_EXTRA_CA_CERTS"
_MOST_HOSTS: Final = 512


class Authority:
    """Signs a certificate for each host that a client asks for. ``close`` removes its folder.

    Raises:
        UsageError: the extra is not installed.
    """

    def __init__(self) -> None:
        try:
            import trustme
        except ImportError:
            raise UsageError(
                "gateway-not-installed",
                "the forward proxy stands on trustme, which is not installed",
                mend="pip install 'pytest-fanout[gateway]'",
            ) from None
        self._ca = trustme.CA(organization_name="pytest-fanout", organization_unit_name="one run")
        self._folder = Path(tempfile.mkdtemp(prefix="fanout-ca-"))  # 0700; only certificates are put there
        self._own = self._ca.cert_pem.bytes()
        self._lock = threading.Lock()
        self._files: dict[bytes, str] = {}
        self._contexts: dict[str, ssl.SSLContext] = {}

    def variables(self, base: Mapping[str, str]) -> dict[str, str]:
        """What makes the clients of a child trust this authority besides what ``base`` makes them trust."""
        own = _read(base.get(EXTRA_VARIABLE))
        given = b"\n".join(_read(path) for path in dict.fromkeys(base.get(name) for name in BUNDLE_VARIABLES))
        roots = given if given.strip() else _system_roots()
        found = dict.fromkeys(BUNDLE_VARIABLES, self._file(roots + b"\n" + own))
        found[EXTRA_VARIABLE] = self._file(own)
        return found

    def context_for(self, host: str) -> ssl.SSLContext:
        """How to speak TLS as ``host``."""
        context = self._contexts.get(host)
        if context is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.set_alpn_protocols(["http/1.1"])
            self._ca.issue_cert(host).configure_cert(context)
            if len(self._contexts) >= _MOST_HOSTS:
                self._contexts.clear()
            self._contexts[host] = context
        return context

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _file(self, others: bytes) -> str:
        """The file that holds our certificate and ``others``."""
        with self._lock:
            if others not in self._files:
                path = self._folder / f"roots-{len(self._files)}.pem"
                path.write_bytes(self._own + others)
                self._files[others] = str(path)
            return self._files[others]


def extra_roots(environ: Mapping[str, str]) -> list[str]:
    """Files of roots that an environment names, for the gateway's own connections."""
    names = (*BUNDLE_VARIABLES[:3], EXTRA_VARIABLE)
    return [path for path in dict.fromkeys(environ.get(name) for name in names) if path and os.path.isfile(path)]


def _read(path: str | None) -> bytes:
    try:
        return Path(path).read_bytes() if path else b""
    except OSError:
        return b""


def _system_roots() -> bytes:
    """Those of this machine; those of certifi where the machine names none."""
    found = _read(ssl.get_default_verify_paths().cafile)
    if found:
        return found
    try:
        import certifi
    except ImportError:
        return b""
    return Path(certifi.where()).read_bytes()
