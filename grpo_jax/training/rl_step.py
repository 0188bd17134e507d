"""One step of reinforcement: collect a rollout batch, update, measure."""

import logging
import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax

from grpo_jax.data.prompts import host_slice
from grpo_jax.training.batches import make_minibatches
from grpo_jax.training.collect import collect
from grpo_jax.training.metrics import mean_totals, rollout_metrics
from grpo_jax.training.rollouts import sample_rows
from grpo_jax.training.scoring import make_scorer
from grpo_jax.training.setup import HostState, Setup, policy_params
from grpo_jax.training.step import make_train_step
from grpo_jax.types import TrainState

_log = logging.getLogger(__name__)


def make_step(setup: Setup) -> Callable:
  """Compiles `run_step(step, state, host)`.

  Args:
    setup: the experiment.

  Returns:
    A function of the steps done, device state and host state to (state, host,
    metrics, sample rows).
  """
  options = setup.options
  train_step = make_train_step(
    setup.recipe,
    setup.config,
    setup.optimizer,
    temperature=options.temperature,
    adapters=setup.lora,
  )
  scorer = make_scorer(
    setup.config,
    temperature=options.temperature,
    groups_per_call=setup.collect_options.prompts_per_step,
    completions_per_row=options.completions_per_row,
    ref_params=setup.params if setup.recipe.needs_reference else None,
  )
  minibatches = make_minibatches(
    setup.recipe,
    minibatches=options.minibatches,
    microbatches=options.microbatches,
    completions_per_row=options.completions_per_row,
  )
  root = jax.random.key(options.seed)

  def run_step(step: int, state: TrainState, host: HostState):
    start = time.perf_counter()
    key = jax.random.fold_in(root, step)
    policy = policy_params(setup, state.params)

    def draw(positions):
      read = host_slice(
        positions, host=jax.process_index(), hosts=jax.process_count()
      )
      examples = [setup.task.train[setup.prompts.order[i]] for i in read]
      return setup.rollout(policy, examples, read, key, step)

    collected, stream = collect(
      host.stream,
      setup.collect_options,
      prompts=setup.prompts,
      recipe=setup.recipe,
      draw=draw,
      score=lambda groups: scorer(policy, state.critic, groups),
    )
    metrics = rollout_metrics(collected, step)
    if collected.passed_over is not None and stream.solve_rates:
      # Rounded once: a restored table may be in another order.
      solve_rate = statistics.fmean(stream.solve_rates.values())
      metrics["curriculum/solve_rate"] = solve_rate
      metrics["curriculum/passed_over"] = collected.passed_over
    # The schedule counts the updates that were made, and a policy that waits
    # for its critic has made fewer.
    counts = optax.tree_utils.tree_get_all_with_path(state.opt_state, "count")
    updates = min(jax.device_get([count for _, count in counts]))
    del policy  # a whole model, if it was merged from adapters
    metrics["learning_rate"] = float(setup.schedule(updates))
    updating = time.perf_counter()
    state, update_metrics = _update(
      setup, state, collected, minibatches, train_step
    )
    metrics |= update_metrics
    end = time.perf_counter()

    tokens = sum(int(s.rollouts.lengths.sum()) for s in collected.sampled)
    seconds = {
      "sample": sum(s.sample_s for s in collected.sampled),
      "reward": sum(s.reward_s for s in collected.sampled),
      "score": collected.score_s,
      "train": end - updating,
    }
    seconds["other"] = end - start - sum(seconds.values())
    metrics |= {f"time/{name}_s": value for name, value in seconds.items()}
    metrics["time/step_s"] = end - start
    metrics["tokens_per_second"] = tokens / (end - start)
    metrics["num_tokens"] = float(host.tokens + tokens)
    host = host.spent(**seconds)._replace(
      stream=stream, tokens=host.tokens + tokens
    )
    rows = [
      row
      for sampled in collected.sampled[:1]
      for row in sample_rows(sampled, setup.task, options.logged_prompts)
    ]
    return state, host, metrics, rows

  return run_step


def _update(setup, state, collected, minibatches, train_step):
  """All updates of a rollout batch; none if nothing can be learnt from it."""
  if collected.rollouts is None:
    _log.warning(
      "No group of this step's rollouts carries a signal; nothing is updated."
    )
    return state, {"groups/no_signal": 1.0}
  wanted = setup.collect_options.prompts_per_step
  if collected.groups < wanted:
    _log.warning(
      "Only %d of %d groups were found in %d rounds; the step goes on with"
      " them.",
      collected.groups,
      wanted,
      setup.collect_options.max_rounds,
    )
  batch, memory, found = minibatches(collected.rollouts, state.memory)
  state = state.replace(memory=memory)
  signal, trained = jax.device_get(
    (jnp.any(batch.advantage != 0), batch.loss_mask.any((1, 2, 3)))
  )
  recipe = setup.recipe
  if not trained.any() or not (signal or recipe.penalties or recipe.critic):
    _log.warning(
      "This step's rollouts have nothing to train on: all advantages"
      " are zero, or all completions filtered. Nothing is updated."
    )
    return state, {"groups/no_signal": 1.0}
  parts, base = [], setup.params if setup.lora else None
  for m in np.flatnonzero(trained):  # the others hold nothing but filling
    part = jax.tree.map(lambda x, m=m: x[m], batch)
    state, metrics = train_step(state, part, base)
    parts.append(metrics)
  means = mean_totals(jax.device_get(parts))
  means |= mean_totals(jax.device_get([found]))
  if means["update_skipped"]:
    _log.warning(
      "%d of %d updates had a loss or gradient that is not finite; they were"
      " skipped.",
      round(means["update_skipped"] * len(parts)),
      len(parts),
    )
  low, high = (means.get(f"clip_ratio/{s}_mean") for s in ("low", "high"))
  if low is not None and high is not None:
    means["clip_ratio/region_mean"] = low + high
  return state, {**means, "groups/no_signal": 0.0}
