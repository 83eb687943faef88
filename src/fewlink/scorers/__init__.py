"""The contract of every scorer: the question it receives, the scores it returns, the reasons it may give."""

from fewlink.scorers.base import (
    EMBEDDING,
    Capabilities,
    EvidenceScorer,
    ExplainingGraphScorer,
    ExplainingScorer,
    GraphScorer,
    Question,
    Reasons,
    Recalibration,
    RelationScorer,
    Scorer,
    SeveralQuestionsScorer,
    best_tails,
    capabilities,
)

__all__ = [
    "EMBEDDING",
    "Capabilities",
    "EvidenceScorer",
    "ExplainingGraphScorer",
    "ExplainingScorer",
    "GraphScorer",
    "Question",
    "Reasons",
    "Recalibration",
    "RelationScorer",
    "Scorer",
    "SeveralQuestionsScorer",
    "best_tails",
    "capabilities",
]
