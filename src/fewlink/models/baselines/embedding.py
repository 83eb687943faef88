"""The embedding family: the paper's baselines, which see the references as triples, and the search for settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fewlink.core.errors import FewlinkError, MissingExtra
from fewlink.data.benchmark import Benchmark
from fewlink.data.training_graph import training_triples
from fewlink.embeddings import INTERACTIONS, Embeddings, EmbeddingSettings, train
from fewlink.evaluation import Protocol, evaluate
from fewlink.models.family import BaselineFamily, Prepared, Reporter
from fewlink.scorers import Question

JOURNAL = "trials.log"
OBJECTIVES = ("dev", "held-out")

LINK_DIMS = {"rescal": 100}  # reals per entity for ordinary link prediction; 512 for all other models
MOST_DENSE = 20_000  # entities up to which every step scores all of them
GRID = (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0)  # of the setting that is searched for
TRIAL_EPOCHS = 5


class EmbeddingScorer:
    """score(h, c) = the model's score of (h, r, c), with r's vector trained on the references."""

    def __init__(self, embeddings: Embeddings, relations: Sequence[str], device: str = "cpu") -> None:
        self.name = embeddings.model
        self.embeddings = embeddings.to(device)
        self.device = device
        self.rows = {name: row for row, name in enumerate(relations)}

    def __call__(self, question: Question) -> torch.Tensor:
        if question.relation not in self.rows:
            raise FewlinkError(f"the embeddings were trained without references of '{question.relation}'")
        heads, candidates = (
            torch.from_numpy(ids.astype(np.int64)).to(self.device) for ids in (question.heads, question.candidates)
        )
        relation = torch.full_like(heads, self.rows[question.relation])
        return self.embeddings.score_all(heads, relation, candidates)


class EmbeddingFamily(BaselineFamily):
    """RESCAL, TransE, DistMult and ComplEx."""

    name = "embedding"
    settings = EmbeddingSettings

    @property
    def models(self) -> Mapping[str, str]:
        return {name: (kind.__doc__ or "").split("\n")[0] for name, kind in INTERACTIONS.items()}

    def prepare(
        self,
        model: str,
        benchmark: Benchmark,
        settings: Any,
        *,
        shots: int,
        draw: int = 0,
        seed: int = 0,
        on_epoch: Reporter | None = None,
    ) -> Prepared:
        settings = settings.replace(seed=seed)
        scorer = train_baseline(benchmark, settings, shots=shots, draw=draw, seed=seed, on_epoch=on_epoch)
        return Prepared(scorer, {"settings": settings.as_dict(), "measured": scorer.embeddings.facts})


def train_baseline(
    benchmark: Benchmark,
    settings: EmbeddingSettings,
    *,
    shots: int,
    draw: int = 0,
    seed: int = 0,
    on_epoch: Reporter | None = None,
) -> EmbeddingScorer:
    """Train on the background graph, all meta-training pairs and the K references of each dev and test relation.

    Early stopping, if the settings enable it, holds out background triples only.
    """
    data = training_triples(benchmark, with_train_tasks=True, shots=shots, draw=draw, seed=seed)
    sizes = len(benchmark.graph.entities), len(data.relations)
    embeddings = train(data.triples, *sizes, settings, on_epoch=on_epoch, protected=~data.background)
    return EmbeddingScorer(embeddings, data.relations, settings.device)


def link_settings(model: str, entities: int, seed: int = 0, device: str = "cpu") -> EmbeddingSettings:
    """Settings for ordinary link prediction on a graph of so many entities; `train_links` searches for one of them."""
    dense: dict[str, Any] = {"regime": "k-vs-all", "batch_size": 200} if entities <= MOST_DENSE else {}
    return EmbeddingSettings(
        model=model,
        dim=LINK_DIMS.get(model, 512),
        epochs=20,
        patience=5,
        n3=0.0 if model == "transe" else 0.01,
        **dense,
        seed=seed,
        device=device,
    )


def searched_setting(model: str) -> str:
    """The setting that `train_links` searches for: the weight of N3, or TransE's learning rate, as it has no N3."""
    return "learning_rate" if model == "transe" else "n3"


def train_links(
    train_on: np.ndarray,
    valid: np.ndarray,
    entities: int,
    relations: int,
    settings: EmbeddingSettings,
    folder: Path,
    *,
    reporter: Callable[[str], Reporter | None] = lambda title: None,
) -> tuple[Embeddings, dict[float, float]]:
    """Train on triples (n, 3) with the value of `searched_setting` that is best on valid (m, 3), and early stopping.

    Also returns the MRR on valid of each value tried, after `TRIAL_EPOCHS` epochs. The search climbs on `GRID` from the
    value of the settings, and the best trial is trained to the end. `folder` has a state for each value, from which a
    stopped search continues. `reporter` makes `on_epoch` from a title.
    """
    name = searched_setting(settings.model)
    trials: dict[float, float] = {}

    def trained(value: float, epochs: int) -> Embeddings:
        of_length = "" if settings.schedule == "constant" else f"-{epochs}"  # only a constant rate can be continued
        changes: dict[str, Any] = {name: value, "epochs": epochs}
        return train(
            train_on,
            entities,
            relations,
            settings.replace(**changes),
            resume=folder / f"{name}-{value:g}{of_length}.safetensors",
            on_epoch=reporter(f"{settings.model} {name}={value:g}"),
            validation=valid,
        )

    def score(place: int) -> float:
        value = GRID[place]
        if value not in trials:
            try:
                vectors = trained(value, min(TRIAL_EPOCHS, settings.epochs))
                measured = [trace["held_out_mrr"] for trace in vectors.trace[:TRIAL_EPOCHS]]
                trials[value] = max(mrr for mrr in measured if mrr is not None)  # None: not an epoch to evaluate
            except FewlinkError:  # the learning rate is too high: training diverged
                trials[value] = 0.0
        return trials[value]

    start = max(getattr(settings, name), GRID[0])  # N3 may be 0
    best = min(range(len(GRID)), key=lambda place: abs(np.log(GRID[place] / start)))
    while True:
        near = [place for place in (best, best - 1, best + 1) if 0 <= place < len(GRID)]
        higher = max(near, key=score)
        if higher == best:
            return trained(GRID[best], settings.epochs), trials
        best = higher


def suggest(trial: Any, base: EmbeddingSettings) -> EmbeddingSettings:
    """One point of a search space that contains the base settings; model, dim, regime and loss are fixed."""

    def number(name: str, low: float, high: float) -> float:
        value = getattr(base, name) or low
        return float(trial.suggest_float(name, min(low, value), max(high, value), log=True))

    def one_of(name: str, *choices: Any) -> Any:
        return trial.suggest_categorical(name, sorted({*choices, getattr(base, name)}))

    changes: dict[str, Any] = {
        "learning_rate": number("learning_rate", 0.003, 0.5),
        "epochs": trial.suggest_int("epochs", min(4, base.epochs), max(40, base.epochs), log=True),
        "batch_size": one_of("batch_size", 512, 1024, 2048, 4096),
        "negatives": one_of("negatives", 512, 2048, 8192),
        "init_scale": number("init_scale", 1e-4, 0.3),
        "schedule": one_of("schedule", "constant", "linear"),
    }
    if base.model == "transe":
        changes["norm"] = one_of("norm", 1, 2)
    else:
        changes["n3"] = number("n3", 1e-4, 0.5)
    return base.replace(**changes)


def tune(
    benchmark: Benchmark,
    base: EmbeddingSettings,
    folder: Path,
    *,
    trials: int,
    shots: int = 3,
    folds: int = 5,
    objective: str = "dev",
    seed: int = 0,
) -> tuple[EmbeddingSettings, float, int]:
    """Search with optuna; the best settings, their value, and the number of finished trials in `folder`.

    `trials` is the total: a further call continues, and several processes can share a folder. The objective `dev` is
    the mean over relations of the MRR (`full`) on dev and on one of `folds` folds of the meta-training relations, which
    is treated like dev, because dev alone has too few relations to compare settings. Test is never used.
    """
    study = _study(f"{benchmark.name} {base.model} dim {base.dim} K={shots} {objective}", base, folder)
    from optuna.trial import FixedTrial, TrialState

    folded = benchmark.with_fold(seed % folds, folds) if folds else benchmark

    def objective_value(trial: Any) -> float:
        settings = suggest(trial, base)
        if objective == "held-out":
            settings = settings.replace(held_out=settings.held_out or 0.02)
        try:
            scorer = train_baseline(folded, settings, shots=shots)
        except FewlinkError:  # the learning rate is too high: training diverged
            return 0.0
        if objective == "held-out":
            return float(scorer.embeddings.facts["held_out_mrr"])
        return evaluate(folded, scorer, Protocol("dev", shots, "full")).metrics()["macro"]["mrr"]

    def finished() -> int:
        return sum(trial.state == TrialState.COMPLETE for trial in study.trials)

    def stop_if_done(study: Any, trial: Any) -> None:
        if finished() >= trials:
            study.stop()

    if finished() < trials:
        study.optimize(objective_value, n_trials=trials - finished(), callbacks=[stop_if_done])
    return suggest(FixedTrial(study.best_params), base), float(study.best_value), finished()


def _study(name: str, base: EmbeddingSettings, folder: Path) -> Any:
    """The study of this name in a folder, new or continued; the base settings are its first trial."""
    try:
        import optuna
    except ImportError:
        raise MissingExtra("tuning", "hpo") from None
    from optuna.storages import JournalStorage, journal

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    folder.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        study_name=name,
        storage=JournalStorage(journal.JournalFileBackend(str(folder / JOURNAL))),
        direction="maximize",
        load_if_exists=True,
        sampler=optuna.samplers.TPESampler(seed=None, constant_liar=True),
    )
    if not study.trials:
        study.enqueue_trial({setting: value for setting, value in base.as_dict().items() if value != 0})
    return study


FAMILY = EmbeddingFamily()
