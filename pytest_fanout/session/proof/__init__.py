"""A new recording is proved before it is stored: replayed in a fresh process with other hashes and a later clock."""

from __future__ import annotations

from pytest_fanout.session.proof.outcome import Proof, ProofNotRun, Replay, compared, unproved_text
from pytest_fanout.session.proof.prover import Prover

__all__ = ["Proof", "ProofNotRun", "Prover", "Replay", "compared", "unproved_text"]
