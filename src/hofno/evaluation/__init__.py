"""Metrics and scores."""

from hofno.evaluation.rollout import RolloutScores, score_rollout
from hofno.evaluation.score import Scores, evaluate, score

__all__ = ["RolloutScores", "Scores", "evaluate", "score", "score_rollout"]
