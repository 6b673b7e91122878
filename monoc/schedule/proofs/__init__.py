"""The proofs: what must hold of a ``plan.py`` in every build before anything is emitted. One proof a file."""

from monoc.schedule.proofs.failure import Failure
from monoc.schedule.proofs.run import ProofResult, prove, prove_cached

__all__ = ["Failure", "ProofResult", "prove", "prove_cached"]
