"""The search for settings of an embedding baseline, with optuna."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fewlink.core.errors import FewlinkError, MissingExtra
from fewlink.evaluation import Protocol, evaluate
from fewlink.models.baselines.embedding import train_baseline
from fewlink.models.embeddings import EmbeddingSettings
from fewlink.tasks.benchmark import Benchmark

JOURNAL = "trials.log"
OBJECTIVES = ("dev", "held-out")


def suggest(trial: Any, base: EmbeddingSettings) -> EmbeddingSettings:
    """A point of the search space, which contains the base settings; model, dim, regime and loss are fixed."""

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
    """Search with optuna; return the best settings, their value, and the number of finished trials in `folder`.

    `trials` is the total: another call continues the search, and several processes can share a folder. The objective
    `dev` is the macro MRR (`full`) on dev and on one of `folds` folds of the train relations, because dev alone has too
    few relations to compare settings. Test is never used.
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
    """Open or create the optuna study in a folder; its first trial has the base settings."""
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
