"""Where a key may go, for code that nobody trusts: to its own provider, and to the server its base-URL variable names.

Otherwise that code could send its dummy to a server of its own, and read the real key there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from pytest_fanout.meter.gateway.headers import RawHeaders
from pytest_fanout.meter.gateway.variables import VARIABLES
from pytest_fanout.meter.keys import sealed_names
from pytest_fanout.wire import hosts

#: How the names of key variables begin, where that is not the provider's label in lower case.
_LABELS: Final[Mapping[str, str]] = {
    "AWS": "bedrock",
    "CO": "cohere",
    "GOOGLE": "gemini",
    "HF": "huggingface",
    "HUGGING": "huggingface",
    "HUGGINGFACEHUB": "huggingface",
    "ZAI": "zhipu",
}
#: Providers that give out hosts to anybody who asks for one: only a base-URL variable says which is ours.
_OF_TENANTS: Final = frozenset({"azure", "baseten", "cloudflare", "helicone", "huggingface", "portkey", "vercel"})
_FIXED: Final = frozenset({"router.huggingface.co", "api-inference.huggingface.co", "api.portkey.ai"})


class Destinations:
    """``environ``: the trusted one that the gateway was started in; what is behind it cannot add to it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._named: set[tuple[str, str]] = set()
        for variable in VARIABLES:
            value = environ.get(variable.name)
            if value:
                self._named.add((variable.label.partition("-")[0], _origin(value)))

    def misled(self, headers: RawHeaders, url: str) -> str | None:
        """The first variable whose key a request to ``url`` would carry where it does not belong; None: it may go."""
        texts = (*(value.decode("latin-1") for _, value in headers), unquote(url))
        names = [name for text in texts for name in sealed_names(text)]
        return next((name for name in names if not self._may_go(name, url)), None)

    def _may_go(self, name: str, url: str) -> bool:
        word = name.partition("_")[0]
        label = _LABELS.get(word, word.lower())
        if (label, _origin(url)) in self._named:
            return True
        parts = urlsplit(url)
        host = parts.hostname or ""
        is_own = hosts.provider_label(host) == label and (label not in _OF_TENANTS or host in _FIXED)
        return is_own and parts.scheme in ("https", "wss") and parts.port in (None, 443)


def _origin(url: str) -> str:
    """Scheme, host and port; "" of what is no URL, which no request has."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
        return f"{scheme}://{parts.hostname}:{parts.port or (443 if scheme == 'https' else 80)}"
    except ValueError:
        return ""
