"""The contract of every scorer: the question it receives, the scores it returns, the reasons it may give."""

from fewlink.scorers.base import (
    Capabilities,
    EvidenceScorer,
    ExplainingGraphScorer,
    ExplainingScorer,
    GraphScorer,
    Question,
    Reasons,
    Scorer,
    best_tails,
    capabilities,
)

__all__ = [
    "Capabilities",
    "EvidenceScorer",
    "ExplainingGraphScorer",
    "ExplainingScorer",
    "GraphScorer",
    "Question",
    "Reasons",
    "Scorer",
    "best_tails",
    "capabilities",
]
