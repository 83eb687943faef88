"""Links that a curator accepts in 30 decisions, with and without learning from them, in a simulation.

    python benchmarks/curation.py [BENCH …] [--split test] [--relations 20] [--draws 5] [--fold 0]

The curator has a relation with K = 3 references, drawn at random, and a pool of heads: up to 25 of the relation's and
15 entities like the references' heads of which no tail is known. One pair at a time is suggested, decided truthfully
(true if the benchmark has the pair) and not suggested again:

- frozen: the best pair of the ranking with the three references; nothing is learnt;
- decisions: the best pair, corrected by all decisions so far; the references stay;
- learning: the same, and after every fifth acceptance the accepted pairs become references;
- next: the pair whose answer tells most, learning as above;
- random: the best tail of a head drawn at random, learning as above.

Counted are accepted links after 30 decisions, and the MRR of true pairs of the pool that no policy had
decided, ranked among all open candidates with what each policy had learnt. `--fold N` takes known relations that are
held out of the graph instead of a split; test relations are for the final figures. The record keeps other benchmarks.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fewlink.core.seeds import generator
from fewlink.curation.learning import TRAIL_SCALE, Learned, Units, learn
from fewlink.curation.next_pair import suggest
from fewlink.data import Benchmark, Task, open_benchmark
from fewlink.data.candidates import by_similarity, open_candidates
from fewlink.data.folds import fold_benchmark
from fewlink.data.training_graph import known_graph
from fewlink.linker import Linker
from fewlink.scorers import Question
from measure import print_table, read_record, write_record

SHOTS, STEPS, TRUE_HEADS, OTHER_HEADS, NEAR = 3, 30, 25, 15, 500
DEEP = 50  # tails of each head that can be suggested
REFRESH = 5  # acceptances after which the references are read again
POLICIES = ("frozen", "decisions", "learning", "next", "random")


@dataclass
class Pool:
    """A relation with references, heads (h,) and candidates (c,); scores by references are computed once."""

    linker: Linker
    task: Task
    references: np.ndarray
    heads: np.ndarray
    candidates: np.ndarray
    seconds: float = 0.0
    _scores: dict[bytes, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, linker: Linker, task: Task, draw: int) -> Pool:
        references, _ = task.split(SHOTS, draw)
        rng, graph = generator(0, "curation", task.name, draw), linker.graph
        own = rng.permutation(np.unique(task.pairs[:, 0]))[:TRUE_HEADS]
        order, similar = by_similarity(graph, references[:, 0])
        others = np.setdiff1d(order[: min(similar, NEAR)], task.known[:, 0])
        heads = np.sort(np.concatenate([own, rng.permutation(others)[:OTHER_HEADS]])).astype(np.int32)
        return cls(linker, task, references, heads, open_candidates(graph, references))

    def scores(self, references: np.ndarray) -> np.ndarray:
        """Scores (h, c) with these references."""
        key = references.tobytes()
        if key not in self._scores:
            begin = time.process_time()
            question = Question(self.task.name, references, self.heads, self.candidates)
            self._scores[key] = np.asarray(self.linker.scorer(question))
            self.seconds += time.process_time() - begin
        return self._scores[key]

    def best(self, references: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The best pairs (n, 2) of all heads and their scores (n,); no reference and no loop."""
        scores = self.scores(references)
        columns = np.argsort(-scores, axis=1, kind="stable")[:, :DEEP]
        pairs = np.stack([np.repeat(self.heads, columns.shape[1]), self.candidates[columns].ravel()], 1)
        values = np.take_along_axis(scores, columns, 1).ravel().astype(float)
        kept = (pairs[:, 0] != pairs[:, 1]) & ~is_in(pairs, self.references)
        return pairs[kept], values[kept]


@dataclass
class Course:
    """The decisions of one policy, and what was learnt at the end."""

    decided: list[tuple[int, int]]
    right: list[bool]
    references: np.ndarray
    learned: Learned | None


def curate(pool: Pool, policy: str, draw: int) -> Course:
    """Thirty decisions by one policy."""
    graph = known_graph(pool.linker.benchmark)
    known, rng = set(map(tuple, pool.task.known.tolist())), generator(0, "curation", policy, pool.task.name, draw)
    references, learned = pool.references, None
    pairs, scores = pool.best(references)
    decided: list[tuple[int, int]] = []
    right: list[bool] = []
    for _ in range(STEPS):
        open_pairs = ~is_in(pairs, np.array(decided or [(-1, -1)]))
        if not open_pairs.any():
            break
        at = int(_choice(policy, pairs[open_pairs], scores[open_pairs], learned, rng))
        pair = tuple(pairs[open_pairs][at].tolist())
        decided.append(pair)
        right.append(pair in known)
        if policy == "frozen":
            continue
        made = np.array(decided, np.int32)
        accepted = np.concatenate([pool.references, made[right]])
        learned = learn(graph, accepted, made[~np.array(right)])
        if policy != "decisions" and right[-1] and sum(right) % REFRESH == 0:
            references = accepted
            pairs, scores = pool.best(references)
    return Course(decided, right, references, learned)


def _choice(
    policy: str, pairs: np.ndarray, scores: np.ndarray, learned: Learned | None, rng: np.random.Generator
) -> Any:
    """The place of the pair to decide."""
    order, values = suggest(learned, pairs, scores, Units(), teach=policy == "next")
    if policy == "random":
        head = rng.choice(np.unique(pairs[:, 0]))
        return np.where(pairs[:, 0] == head, values, -np.inf).argmax()
    return order[0]


def remaining_mrr(pool: Pool, courses: dict[str, Course]) -> dict[str, float] | None:
    """The MRR of the pool's true pairs that no policy has decided; None if there is none."""
    done = {pair for course in courses.values() for pair in course.decided} | set(map(tuple, pool.references.tolist()))
    inside = np.isin(pool.task.known[:, 0], pool.heads) & np.isin(pool.task.known[:, 1], pool.candidates)
    left = [pair for pair in map(tuple, pool.task.known[inside].tolist()) if pair not in done][:40]
    if not left:
        return None
    values: dict[str, float] = {}
    for policy, course in courses.items():
        ranks, scores = [], pool.scores(course.references)
        for head in dict.fromkeys(head for head, _ in left):
            row = scores[np.searchsorted(pool.heads, head)].astype(float)
            if course.learned is not None:
                pairs = np.stack([np.full(len(row), head, np.int32), pool.candidates], 1)
                row = row + TRAIL_SCALE * course.learned.logits(pairs)
            rivals = row[~np.isin(pool.candidates, pool.task.known_tails[head])]
            for tail in (tail for own, tail in left if own == head):
                value = row[np.searchsorted(pool.candidates, tail)]
                ranks.append(1 + (rivals > value).sum() + (rivals == value).sum() / 2)
        values[policy] = float(np.mean(1 / np.array(ranks)))
    return values


def is_in(pairs: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Which pairs (n, 2) are among others (m, 2)."""
    table = set(map(tuple, others.tolist()))
    return np.array([tuple(pair) in table for pair in pairs.tolist()], bool)


def measure(benchmark: Benchmark, tasks: Sequence[Task], draws: int, policies: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each relation: the means over draws."""
    linker, rows = Linker.shipped(benchmark), []
    for task in tasks:
        made: list[dict[str, float]] = []
        begin = time.process_time()
        for draw in range(1, draws + 1):
            pool = Pool.of(linker, task, draw)
            courses = {policy: curate(pool, policy, draw) for policy in policies}
            row = {f"{policy} {STEPS}": float(sum(course.right)) for policy, course in courses.items()}
            for policy, value in (remaining_mrr(pool, courses) or {}).items():
                row[f"{policy} MRR"] = value
            made.append(row)
        keys = dict.fromkeys(key for row in made for key in row)
        means = {key: float(np.mean([row[key] for row in made if key in row])) for key in keys}
        rows.append({"bench": benchmark.name, "relation": task.name, **means, "CPU s": time.process_time() - begin})
        print(task.name, {k: round(v, 2) for k, v in means.items() if k.endswith(("30", "MRR"))}, flush=True)
    return rows


def summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each benchmark and policy, the means over relations and the gain over `frozen`."""
    table = []
    for bench in dict.fromkeys(row["bench"] for row in rows):
        own = [row for row in rows if row["bench"] == bench]
        base = float(np.mean([row["frozen 30"] for row in own]))
        for policy in [policy for policy in POLICIES if all(f"{policy} 30" in row for row in own)]:
            line: dict[str, Any] = {"bench": bench, "policy": policy, "relations": len(own)}
            line["accepted of 30"] = float(np.mean([row[f"{policy} 30"] for row in own]))
            line["gain"] = line["accepted of 30"] / base - 1 if base else 0.0
            line["relations with fewer"] = sum(row[f"{policy} 30"] < row["frozen 30"] for row in own)
            line["MRR"] = float(np.mean([row[f"{policy} MRR"] for row in own if f"{policy} MRR" in row] or [0]))
            table.append(line)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benches", nargs="*", default=["nell-one"], metavar="BENCH")
    parser.add_argument("--split", default="test")
    parser.add_argument("--fold", type=int, help="known relations held out of the graph, instead of a split")
    parser.add_argument("--relations", type=int, default=20, help="relations of each benchmark at most")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--no-record", action="store_true")
    given = parser.parse_args()
    policies, rows = given.policies.split(","), []
    for name in given.benches:
        benchmark, split = open_benchmark(name), given.split
        if given.fold is not None:
            benchmark, split = fold_benchmark(benchmark, given.fold), "dev"
        tasks = [task for task in benchmark.split(split) if len(task.pairs) > SHOTS]
        spread = np.linspace(0, len(tasks) - 1, min(given.relations, len(tasks))).astype(int)
        rows += measure(benchmark, [tasks[place] for place in spread], given.draws, policies)
    for row in rows:
        row["split"] = "held out" if given.fold is not None else given.split
    table = summary(rows)
    print_table(table)
    if not given.no_record:
        before = read_record("curation") or {}
        kept = [
            r
            for r in before.get("rows", [])
            if (r["bench"], r["split"]) not in {(n["bench"], n["split"]) for n in rows}
        ]
        facts = {"shots": SHOTS, "decisions": STEPS, "draws": given.draws, "heads": TRUE_HEADS + OTHER_HEADS}
        write_record("curation", {**facts, "summary": summary([*kept, *rows]), "rows": [*kept, *rows]})


if __name__ == "__main__":
    main()
