"""The contract of every scorer, and the scorers that need no training."""

from fewlink.scorers.base import ExplainingScorer, Question, Reasons, Scorer, best_tails

__all__ = ["ExplainingScorer", "Question", "Reasons", "Scorer", "best_tails"]
