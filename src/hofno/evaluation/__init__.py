"""Metrics and scores."""

from hofno.evaluation.mean import errors_of_mean
from hofno.evaluation.outcomes import outcomes_of, predicted_outcomes
from hofno.evaluation.rollout import RolloutScores, score_rollout
from hofno.evaluation.score import Scores, evaluate, score

__all__ = [
    "RolloutScores",
    "Scores",
    "errors_of_mean",
    "evaluate",
    "outcomes_of",
    "predicted_outcomes",
    "score",
    "score_rollout",
]
