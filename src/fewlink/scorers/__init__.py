"""The contract of every scorer: the question it receives, the scores it returns, the reasons it may give."""

from fewlink.scorers.base import ExplainingScorer, Question, Reasons, Scorer, best_tails

__all__ = ["ExplainingScorer", "Question", "Reasons", "Scorer", "best_tails"]
