"""Packaging of grpo_jax: metadata, dependencies and extras."""

from pathlib import Path

from setuptools import find_packages, setup

_VERSION = next(
  line.split('"')[1]
  for line in Path("grpo_jax/__init__.py").read_text().splitlines()
  if line.startswith("__version__")
)

setup(
  name="grpo_jax",
  version=_VERSION,
  description="Reinforcement learning of reasoning models, in JAX and Flax",
  long_description=Path("README.md").read_text(),
  long_description_content_type="text/markdown",
  license="Apache-2.0",
  python_requires=">=3.11,<3.14",
  packages=find_packages(include=["grpo_jax*", "experiments*"]),
  install_requires=[
    "absl-py>=2.1",
    "chex>=0.1.90",
    "flax>=0.12",
    "grain>=0.2.12",
    "importlib_resources>=6",  # tensorflow-datasets uses it undeclared
    "jax>=0.8",
    "jaxtyping>=0.3",
    "matplotlib>=3.9",
    "ml-collections>=1.0",
    "numpy>=2.0",
    "optax>=0.2.5",
    "orbax-checkpoint>=0.11.25",
    "reasoning-gym>=0.1.23",
    "rich>=13.7",
    "scipy>=1.13",
    "tensorboardX>=2.6.2",
    "tensorflow-datasets>=4.9.9",
  ],
  extras_require={
    "test": [
      "hypothesis>=6.100",
      "pytest>=8.2",
      "pytest-xdist>=3.7",
      "ruff>=0.12",
      "typeguard==2.13.3",  # jaxtyping cannot use later ones
    ],
    "tpu": ["jax[tpu]>=0.8"],
    "cuda": ["jax[cuda13]>=0.8"],
    "hf": ["huggingface_hub>=0.30", "tokenizers>=0.21"],
  },
)
