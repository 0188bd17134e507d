"""Reinforcement learning of reasoning models, as pure functions in JAX."""

__version__ = "0.3.0"
