from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import benchmark_of, graph_of, task_of

from fewlink.core.errors import FewlinkError, InputError, UnknownName
from fewlink.evaluation.evaluator import Protocol
from fewlink.evaluation.records import RecordStore
from fewlink.models import family_of
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.studies import NAMES, jobs, open_study
from fewlink.studies.jobs import Job, pairs_of, pending_jobs, run_jobs
from fewlink.studies.plan import plan_texts, read_plan
from fewlink.studies.workspace import Workspace
from fewlink.tasks import Benchmark


def test_every_study_has_a_plan_with_what_is_expected() -> None:
    assert set(plan_texts()) == set(NAMES)
    for name in plan_texts():
        plan = read_plan(name)
        assert plan.title and plan.about and plan.expect
        assert open_study(name).show
        for model in plan.as_tiny().names:
            assert model in plan.names
        for model in plan.settings:
            assert model in plan.models


def test_published_figures_are_those_of_the_paper() -> None:
    published = read_plan("overall").published
    assert published["nell-one"]["fsrl"]["test"] == {"mrr": 0.318, "hits@10": 0.507, "hits@5": 0.433, "hits@1": 0.211}
    assert published["wiki-one"]["fsrl"]["dev"] == {"mrr": 0.390, "hits@10": 0.486, "hits@5": 0.430, "hits@1": 0.338}
    assert set(published["nell-one"]) == set(published["wiki-one"])
    assert read_plan("ablation").published["nell-one"]["fsrl-as2c"]["dev"]["mrr"] == 0.401
    assert len(read_plan("relations").published["nell-one"]["fsrl"]) == 11
    assert read_plan("datasets").published_data["wiki-one"]["entities"] == 4_838_244


def test_errors_of_the_published_tables() -> None:
    """What docs/findings.md says about Tables 3 and 4."""
    rows = read_plan("relations").published["nell-one"]
    assert rows["fsrl"]["3"]["hits@1"] > rows["fsrl"]["3"]["hits@5"] > rows["fsrl"]["3"]["hits@10"]
    assert rows["fsrl"]["4"] == rows["fsrl"]["5"]
    too_high = [
        (model, relation, round(bound, 3))
        for model, relations in rows.items()
        for relation, row in relations.items()
        if row["mrr"] > (bound := highest_mrr(row)) + 0.002  # more than rounding
    ]
    assert too_high == [("fsrl", "11", 0.412)]
    records = RecordStore(Path(__file__).parents[2] / "results" / "nell-one").records
    queries = next(
        [int(relation["queries"]) for relation in record.relations.values()]
        for record in records
        if (record.model, record.split, record.shots) == ("rules", "test", 3)
    )
    assert (len(queries), min(queries), max(queries)) == (11, 66, 412)
    every = [row for relations in rows.values() for row in relations.values()]
    assert sum(not any(fits(row, count) for count in queries) for row in every) == 15
    assert len(every) == 22
    variants = read_plan("ablation").published["nell-one"]
    hits = [variants[model]["test"]["hits@1"] for model in ("fsrl-as2b", "fsrl-as2c")]
    assert hits == [0.219, 0.226] and min(hits) > read_plan("overall").published["nell-one"]["fsrl"]["test"]["hits@1"]


def highest_mrr(row: Mapping[str, float]) -> float:
    """The highest MRR that Hits@1, Hits@5 and Hits@10 allow, with ranks of 1, 2, 6 and 11."""
    first, five, ten = (row[f"hits@{k}"] for k in (1, 5, 10))
    return first + (five - first) / 2 + (ten - five) / 6 + (1 - ten) / 11


def fits(row: Mapping[str, float], queries: int) -> bool:
    """Whether each Hits@k, rounded to three decimals, is a share of so many queries."""
    return all(
        any(abs(round(count / queries, 3) - row[f"hits@{k}"]) < 1e-9 for count in range(queries + 1))
        for k in (1, 5, 10)
    )


def test_a_tiny_study_has_settings_of_its_own() -> None:
    plan = read_plan("overall")
    tiny = plan.as_tiny()
    assert tiny.benchmark == "umls"
    assert getattr(plan.settings_of("fsrl"), "steps", 0) == 6000
    assert getattr(tiny.settings_of("fsrl"), "steps", 0) < 100
    assert getattr(plan.settings_of("trail"), "also", "").split(",")[-1] == "umls"
    assert getattr(tiny.settings_of("trail"), "also", "none") == ""
    assert tiny.settings_of("rules") is None


def test_a_part_of_a_study() -> None:
    part = read_plan("shots").with_only(["fsrl"], [2], 1)
    assert (part.models, part.shots, part.seeds) == (["fsrl"], [2], 1)
    assert read_plan("shots").with_only([], [], None) == read_plan("shots")
    with pytest.raises(UnknownName, match="'fsrl'"):
        read_plan("shots").with_only(["fsrll"], [], None)
    with pytest.raises(FewlinkError, match="seeds"):
        read_plan("shots").with_only([], [], 0)


def test_a_part_of_a_leaderboard() -> None:
    plan = read_plan("rivals")
    assert {"popularity", "complex", "fsrl", "metar", "ultra-4g", "trail-built-in", "trail"} <= {*plan.names}
    part = plan.with_only(["trail", "rules"], [3], 2, "nell-one")
    assert part.names == ["rules", "trail"]
    cells = [(r.models, r.benchmarks, r.shots, r.seeds) for r in part.rivals if r.models and r.benchmarks]
    assert cells == [(["rules"], ["nell-one"], [3], 1), (["trail"], ["nell-one"], [3], 2)]
    tiny = plan.as_tiny()
    assert (tiny.names, {b for r in tiny.rivals for b in r.benchmarks}) == (["popularity", "rules"], {"umls"})


def small(last: str) -> Benchmark:
    pairs = [(0, 1), (1, 2), (2, 0)]
    return benchmark_of(graph_of("a r b", last), **{s: [task_of(pairs, [0, 1, 2], name=s)] for s in ("dev", "test")})


def test_runs_of_other_settings_or_data_have_another_folder(tmp_path: Path) -> None:
    """Otherwise a study would take the model of another one for its own."""
    one, other = (Workspace(small(last), tmp_path / "results", tmp_path) for last in ("b r c", "c r b"))
    settings = FewShotSettings(model="fsrl", steps=5)
    folder = one.run_folder("fsrl", settings)
    assert folder.parent == tmp_path and one.run_folder("fsrl", settings.replace(seed=3)) == folder
    assert one.run_folder("fsrl", settings.replace(device="cuda")) == folder
    others = [one.run_folder("fsrl", settings.replace(steps=6)), other.run_folder("fsrl", settings)]
    assert len({folder, *others}) == 3


def test_only_shots_that_leave_a_query_of_each_relation_are_run(tmp_path: Path) -> None:
    plan = read_plan("shots").model_copy(
        update={"models": ["popularity"], "shots": [1, 2, 3, 4], "candidates": ["full"]}
    )
    workspace = Workspace(small("b r c"), tmp_path / "results", tmp_path)
    (job,) = pending_jobs(plan, workspace)
    assert job.shots == [1, 2]
    run_jobs([job], workspace)
    assert pending_jobs(plan, workspace) == []
    assert len(pending_jobs(plan, replace(workspace, benchmark=small("c r b")))) == 1  # the data have changed


def test_the_family_of_a_model() -> None:
    families = [family_of(m).name for m in ("rules", "complex", "gmatching-max", "trail")]
    assert families == ["learning-free", "embedding", "fewshot", "trail"]


PLAN = "title = 'x'\nabout = ''\nexpect = ''\n"


def test_the_time_of_training_and_evaluations_is_said_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two seeds of 1,000 steps, evaluated every 500 on 2 queries with 3 candidates, and 2 times at the end."""
    pairs = [(0, 1), (0, 2), (1, 2), (1, 0), (2, 0)]
    tasks = {split: [task_of(pairs, [0, 1, 2], name=split)] for split in ("dev", "test")}
    benchmark = benchmark_of(graph_of("a r b", "b r c"), **tasks)
    assert pairs_of(benchmark, Protocol("dev", 3, "full")) == 6
    assert pairs_of(benchmark, Protocol("dev", 5, "open")) == 0
    monkeypatch.setattr(jobs, "PAPER_SIZE", 2)
    assert pairs_of(benchmark, Protocol("dev", 3, "paper")) == 4
    monkeypatch.setattr(jobs, "PAIRS_PER_SECOND", {"cpu": 0.5})
    monkeypatch.setattr(jobs, "_scorers", lambda job, workspace: [])
    said: list[str] = []
    protocols: dict[int, tuple[Protocol, ...]] = {seed: (Protocol("test", 3, seed=seed),) for seed in (0, 1)}
    job = Job("fsrl", FewShotSettings(model="fsrl", steps=1000, evaluate_every=500), protocols)
    run_jobs([job], Workspace(benchmark, tmp_path, tmp_path / "work", log=said.append))
    expected = "at most 2,000 steps, about 33 s at 60 a second, 72 s for evaluations, and more for vectors"
    assert said[0] == f"[1/1] fsrl, K = 3, seeds 0, 1: {expected}"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("title = 1 2", "TOML"),
        ("title = 'x'\nabout = ''", "expect"),
        (f"{PLAN}model = []", "model"),
        (f"{PLAN}models = ['trial']", "'trail'"),
        (f"{PLAN}models = ['fsrl']\n[settings]\nfsrl = ['step=1']", "'steps'"),
        (f"{PLAN}[tiny.settings]\nfewshots = []", "'fewshot'"),
        (f"{PLAN}candidates = ['fulll']", "candidates.0"),
        (f"{PLAN}splits = ['tests']", "splits.0"),
    ],
)
def test_an_invalid_plan_is_refused_with_its_path_and_field(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=named) as refused:
        read_plan(str(path))
    assert "mine.toml" in str(refused.value)
