"""Which gRPC method asks for what: the table of ``endpoints``, for paths ``/package.Service/Method``."""

from __future__ import annotations

import re
from typing import Final

from pytest_fanout.records import Endpoint

_OTHER: Final = Endpoint(None, "other")
_GOOGLE: Final = (
    r"/google\.(?:cloud\.aiplatform|ai\.generativelanguage)\.\w+\.(?:Prediction|Generative|LlmUtility)Service/"
)

_TABLE: Final[tuple[tuple[str, str | None, str], ...]] = (
    (r"/xai_api\.Chat/GetCompletion(?:Chunk)?", "xai.chat", "generate"),
    (r"/xai_api\.Chat/CompactContext", "xai.chat", "compact"),
    (r"/xai_api\.Chat/StartDeferredCompletion|/xai_api\.BatchMgmt/\w+", None, "batch"),
    (r"/xai_api\.Sample/SampleText(?:Streaming)?", "xai.sample", "generate"),
    (r"/xai_api\.Embedder/Embed", "embeddings", "embed"),
    (r"/xai_api\.Tokenize/\w+", None, "count"),
    (_GOOGLE + "(?:Stream)?GenerateContent", "gemini.generate", "generate"),
    (_GOOGLE + "(?:Stream)?RawPredict", "vertex.predict", "generate"),
    (_GOOGLE + "(?:Batch)?Embed(?:Contents?|Text)", "embeddings", "embed"),
    (_GOOGLE + "(?:Count|Compute)Tokens", None, "count"),
)
_RULES: Final = tuple((re.compile(path), Endpoint(api, kind)) for path, api, kind in _TABLE)
#: Methods of model hosts that run no language model: lists, sign-in, storage, media, health, and polling for what was
#: started before.
_KNOWN_OTHER: Final = re.compile(
    r"/xai_api\.(?:Models|Auth|Files|Documents|Image|Video)/\w+|/xai_api\.Chat/(?:Get|Delete)\w+"
    r"|/grpc\.(?:health|reflection)\.[\w.]+/\w+|/google\.longrunning\.Operations/\w+"
)


def classify_rpc(path: str) -> Endpoint:
    """What a gRPC method asks for."""
    return next((endpoint for rule, endpoint in _RULES if rule.fullmatch(path)), _OTHER)


def is_known_other_rpc(path: str) -> bool:
    """Whether a method that ``classify_rpc`` does not name is known to run no language model."""
    return _KNOWN_OTHER.fullmatch(path) is not None
