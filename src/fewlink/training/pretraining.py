"""The vectors a few-shot model looks at, trained on a benchmark's own triples; no dev or test pair is ever seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fewlink import together
from fewlink.embeddings import Embeddings, EmbeddingSettings
from fewlink.embeddings.state import remove_state
from fewlink.recipes import recipe
from fewlink.scorers.relational import train_on
from fewlink.tasks.benchmark import Benchmark
from fewlink.tasks.triples import training_triples


def pretrain(
    benchmark: Benchmark,
    settings: EmbeddingSettings | None = None,
    *,
    out: Path | str,
    with_train_tasks: bool = False,
    half: bool = False,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
) -> Embeddings:
    """Train embeddings on the background, with the train relations if asked for, into a folder.

    Without settings they are those of the recipe `complex`. What was stopped continues from its last saved epoch. With
    `half` the entities' vectors are kept in half precision. Several processes train as one; the first writes the
    folder, which all of them must see.
    """
    out, settings = Path(out), settings or recipe("complex", EmbeddingSettings).settings
    data = training_triples(benchmark, with_train_tasks=with_train_tasks)
    state = out.with_name(f".{out.name}.state.safetensors")
    embeddings = train_on(benchmark, data, settings, state=state, on_epoch=on_epoch)
    embeddings = embeddings.halved() if half else embeddings
    embeddings.facts.update(benchmark=benchmark.fingerprint, with_train_tasks=with_train_tasks)
    graph = benchmark.graph.fingerprint
    together.from_first(lambda: embeddings.save(out, graph, graph=benchmark.name, relation_names=data.relations))
    remove_state(state)
    return embeddings if together.count() == 1 else Embeddings.open(out)
