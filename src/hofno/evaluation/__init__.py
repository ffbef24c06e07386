"""Metrics and scores."""

from hofno.evaluation.score import Scores, evaluate, score

__all__ = ["Scores", "evaluate", "score"]
