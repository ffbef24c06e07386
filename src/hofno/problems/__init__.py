"""Benchmarks: sampler, solver call, protocol and card, one file each."""

from hofno.problems.base import Arrays, Problem, Rollout, Trajectories
from hofno.problems.registry import PROBLEMS, problem

__all__ = ["PROBLEMS", "Arrays", "Problem", "Rollout", "Trajectories", "problem"]
