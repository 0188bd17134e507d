"""Measures the verifiers: coverage, agreement, speed, and a pool under attack.

    python scripts/measure_verifiers.py --data_dir=DIR

DIR holds gsm8k/train.jsonl, gsm8k/test.jsonl (`answer`) and
math500/test.jsonl (`answer`). Takes a few minutes; prints Markdown. Needs
pip install -e '.[math]'.
"""

import collections
import itertools
import json
import random
import time
from pathlib import Path

from absl import app, flags

from grpo_jax.rewards import equivalence
from grpo_jax.rewards.equivalence import canonical, compare
from grpo_jax.rewards.extraction import extract
from grpo_jax.rewards.pool import Pool
from grpo_jax.rewards.screen import readable
from grpo_jax.rewards.symbolic import symbolic_pool
from grpo_jax.rewards.verify import Gold, count_outcomes, parse_gold, verify_all

_DATA = flags.DEFINE_string("data_dir", None, "see above", required=True)
_WORKERS = flags.DEFINE_integer("workers", 2, "processes of the pool")
_PAIRS = flags.DEFINE_integer("pairs", 1000, "compared by both tiers")
_ITEMS = flags.DEFINE_integer("items", 10_000, "of which 1 % never return")


def _rows(path: str) -> list[dict]:
  lines = (Path(_DATA.value) / path).read_text("utf-8").splitlines()
  return [json.loads(line) for line in lines]


def coverage(solutions: list[str], answers: list[str]) -> None:
  """How many references extract, and what the exact tier makes of MATH-500."""
  golds = [parse_gold(text) for text in solutions]
  own = verify_all(golds, solutions)
  print(f"GSM8K: {count_outcomes(own)} of {len(solutions)} references")
  meanings = [canonical(answer) for answer in answers]
  kinds = collections.Counter(meaning.key[0] for meaning in meanings)
  decided = sum(meaning.decided for meaning in meanings)
  print(f"MATH-500: the exact tier decides {decided} of {len(answers)}")
  print(f"  kinds: {dict(kinds)}")
  distinct = sorted(set(answers))
  verdicts = {
    (a, b): compare(canonical(a), canonical(b))
    for a, b in itertools.product(distinct, repeat=2)
  }
  asymmetric = sum(verdicts[a, b] is not verdicts[b, a] for a, b in verdicts)
  equal = [pair for pair in verdicts if pair[0] < pair[1] and verdicts[pair]]
  print(
    f"  asymmetric pairs: {asymmetric}; equal pairs, for a person to check:"
  )
  for a, b in equal:
    print(f"    {a}  =  {b}")


def agreement(answers: list[str]) -> None:
  """Pairs that the exact tier decides, as the symbolic tier sees them."""
  draw = random.Random(0)
  others = [(draw.choice(answers), draw.choice(answers)) for _ in answers]
  pairs = [(answer, answer) for answer in answers] + others
  pairs = [pair for pair in pairs if all(map(readable, pair))]
  pairs = draw.sample(pairs, min(_PAIRS.value, len(pairs)))
  with symbolic_pool(workers=_WORKERS.value, limit_s=20.0) as pool:
    start = time.perf_counter()
    results = pool.map([tuple(map(readable, pair)) for pair in pairs])
    seconds = time.perf_counter() - start
  table, differences = collections.Counter(), []
  for pair, result in zip(pairs, results, strict=True):
    exact = compare(*map(canonical, pair))
    symbolic = result.value if result.status == "done" else result.status
    table[exact, symbolic] += 1
    if exact is not symbolic and exact is not None:
      differences.append((exact, symbolic, *pair))
  print(f"Both tiers on {len(pairs)} pairs ({seconds:.0f} s for the second):")
  for (exact, symbolic), count in table.most_common():
    print(f"  exact {exact}, symbolic {symbolic}: {count}")
  for exact, symbolic, a, b in differences:
    print(f"    exact {exact}, symbolic {symbolic}: {a}  |  {b}")


def speed(name: str, golds: list[Gold]) -> None:
  """Verdicts of the exact tier per second of one core.

  References are read before, once each. From an empty cache, each answer that
  is spelled differently is new: the slowest that a batch can be. From a full
  one, all have been seen, as when completions of a group agree.
  """
  texts = [rf"So it is \boxed{{{gold.answer}}}." for gold in golds]
  cold = _best_of_5(lambda: verify_all(golds, texts), before=_forget)
  warm = _best_of_5(lambda: verify_all(golds, texts))
  found = _best_of_5(lambda: [extract(text) for text in texts])
  print(
    f"{name}: {len(golds) / cold:,.0f} verdicts/s from an empty cache,"
    f" {len(golds) / warm:,.0f} from a full one;"
    f" {found / len(golds) * 1e6:.1f} us of each is extraction"
  )


def _forget() -> None:
  equivalence.cached_canonical.cache_clear()


def _best_of_5(run, before=lambda: None) -> float:
  times = []
  for _ in range(5):
    before()
    start = time.process_time()
    run()
    times.append(time.process_time() - start)
  return min(times)


def attack() -> None:
  """Items of which every hundredth never returns, at a limit of a second."""
  hang = 100
  items = [(3600.0 if n % hang == 0 else 0.0, n) for n in range(_ITEMS.value)]
  with Pool(
    "measure_verifiers:sleep_and_return",
    workers=_WORKERS.value,
    limit_s=1.0,
    memory_mib=512,
    recycle_after=2000,
  ) as pool:
    start = time.perf_counter()
    results = pool.map(items)
    seconds = time.perf_counter() - start
  statuses = collections.Counter(result.status for result in results)
  in_order = all(
    result.value == n for n, result in enumerate(results) if n % hang
  )
  print(
    f"Pool of {_WORKERS.value}: {len(items)} items in {seconds:.1f} s,"
    f" {dict(statuses)}, in order: {in_order}"
  )


def sleep_and_return(seconds: float, value: int) -> int:
  time.sleep(seconds)
  return value


def main(argv) -> None:
  del argv
  train = [row["answer"] for row in _rows("gsm8k/train.jsonl")]
  test = [row["answer"] for row in _rows("gsm8k/test.jsonl")]
  answers = [row["answer"] for row in _rows("math500/test.jsonl")]
  coverage(train + test, answers)
  speed("GSM8K test", [parse_gold(text) for text in test])
  speed("MATH-500", [parse_gold(text) for text in answers])
  attack()
  agreement(answers)


if __name__ == "__main__":
  app.run(main)
