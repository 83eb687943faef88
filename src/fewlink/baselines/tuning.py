"""A search for an embedding baseline's settings with optuna: resumable, and open to several processes at once.

What is maximised is the mean over relations of the MRR (`full`) on dev and on a fold of the meta-training relations,
which is treated like dev: five relations alone are too few to tell settings apart. Test is never looked at.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from fewlink.base.errors import FewlinkError, MissingExtra
from fewlink.baselines.embedding import train_baseline
from fewlink.data import Benchmark
from fewlink.embeddings import EmbeddingSettings
from fewlink.evaluation import Protocol, evaluate

JOURNAL = "trials.log"
OBJECTIVES = ("dev", "held-out")


def suggest(trial: Any, base: EmbeddingSettings) -> EmbeddingSettings:
    """One point of a search space that holds the base settings; model, dim, regime and loss stay."""

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
    return dataclasses.replace(base, **changes)


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
    """The best settings, their value, and the number of finished trials, all processes on `folder` counted.

    `trials` is the total wanted: calling again continues, and several processes share the work.
    """
    try:
        import optuna
    except ImportError:
        raise MissingExtra("tuning", "hpo") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    folder.mkdir(parents=True, exist_ok=True)
    from optuna.storages import JournalStorage, journal

    storage = JournalStorage(journal.JournalFileBackend(str(folder / JOURNAL)))
    name = f"{benchmark.name} {base.model} dim {base.dim} K={shots} {objective}"
    study = optuna.create_study(
        study_name=name,
        storage=storage,
        direction="maximize",
        load_if_exists=True,
        sampler=optuna.samplers.TPESampler(seed=None, constant_liar=True),
    )
    if not study.trials:  # the settings one starts from are the first trial
        study.enqueue_trial({name: value for name, value in base.as_dict().items() if value != 0})
    folded = benchmark.with_fold(seed % folds, folds) if folds else benchmark

    def value(trial: Any) -> float:
        settings = suggest(trial, base)
        if objective == "held-out":
            settings = dataclasses.replace(settings, held_out=settings.held_out or 0.02)
        try:
            scorer = train_baseline(folded, settings, shots=shots)
        except FewlinkError:  # a rate too high for these settings diverges: worth nothing
            return 0.0
        if objective == "held-out":
            return float(scorer.embeddings.facts["held_out_mrr"])
        return evaluate(folded, scorer, Protocol("dev", shots, "full")).metrics()["macro"]["mrr"]

    def enough(study: Any, trial: Any) -> None:
        if sum(t.state == optuna.trial.TrialState.COMPLETE for t in study.trials) >= trials:
            study.stop()

    finished = [t for t in study.trials if t.state == optuna.trial.TrialState.COMPLETE]
    if len(finished) < trials:
        study.optimize(value, n_trials=trials - len(finished), callbacks=[enough])
    finished = [t for t in study.trials if t.state == optuna.trial.TrialState.COMPLETE]
    best = suggest(optuna.trial.FixedTrial(study.best_params), base)
    return best, float(study.best_value), len(finished)
