"""TRAIL with the evidence of names, evaluated with the weights that come with the package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fewlink.core.errors import FewlinkError
from fewlink.data.benchmark import Benchmark
from fewlink.data.training_graph import known_graph
from fewlink.models.family import Prepared
from fewlink.models.names.scorer import NamedScorer, with_names
from fewlink.models.trail.family import TrailFamily

NAME = "trail-names"  # in results, beside `trail-shipped`


class NamesFamily(TrailFamily):
    """TRAIL with names; it has no models to train, since the model that is trained is TRAIL."""

    name = "names"
    shipped_models: ClassVar[tuple[str, ...]] = (NAME,)

    @property
    def models(self) -> Mapping[str, str]:
        return {}

    def shipped(self, model: str, benchmark: Benchmark, device: str) -> Prepared:
        plain = super().shipped("trail", benchmark, device)
        scorer = with_names(plain.scorer, known_graph(benchmark))
        if not isinstance(scorer, NamedScorer):
            raise FewlinkError(f"the names of {benchmark.name} are no evidence: use --scorer trail")
        scorer.name = NAME
        return Prepared(scorer, {**plain.config, "names": scorer.gate.facts})


FAMILY = NamesFamily()
