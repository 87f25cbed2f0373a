"""Weights: the large tensors of a model, kept outside its graph."""

from litehouse.weights.arena import Arena
from litehouse.weights.store import Weights, WeightsBuilder

__all__ = ["Arena", "Weights", "WeightsBuilder"]
