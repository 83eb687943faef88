"""What is recorded: each function of `THINGS` runs one thing through public entry points and gives its facts.

A thing takes an empty folder and gives JSON: ids, names, ranks, scores, counts and exit codes, but no sentences. Names
of fields in answers are read in the `…_facts` functions only; when an answer gets another layout, change them.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from tests.goldens.mistakes import mistakes
from tests.goldens.running import DECISIONS, Server, nell_one, people_file, serving, succeeds, umls_file
from torch import Tensor, nn

import fewlink

Facts = dict[str, Any]
GROUPS = ["--reference", "APT38 => Windows", "--reference", "TeamTNT => Containers"]
PAIRS = [["APT38", "Windows"], ["TeamTNT", "Containers"]]
SCORERS = ("trail", "rules", "popularity", "reference-tails")


# What is read of an answer


def picked(row: Mapping[str, Any], *fields: str) -> Facts:
    """These fields of an object."""
    return {field: row[field] for field in fields}


def row_facts(rows: Sequence[Mapping[str, Any]]) -> list[Facts]:
    """Ranked pairs, with the paths that support them if the answer explains them."""
    found = []
    for row in rows:
        facts = picked(row, "head", "tail", "rank", "score", "probability", "known")
        if row.get("reasons"):
            facts["reasons"] = reason_facts(row["reasons"])
        found.append(facts)
    return found


def reason_facts(reasons: Mapping[str, Any]) -> Facts:
    """The score of an explained pair, its five strongest paths with the effect of each, and the path drawn first."""
    effects = {}
    for path in sorted(reasons["paths"], key=lambda path: -(path["weight"] or 0.0))[:5]:
        effects[path["text"]] = {"weight": path["weight"]}
    return {"score": reasons["score"], "first": reasons["lines"][0], "paths": effects}


def table_facts(text: str) -> list[Facts]:
    """Decisions in an export as a table with commas or tabs."""
    text = text.removeprefix("\ufeff")
    rows = csv.DictReader(io.StringIO(text), delimiter="\t" if "\t" in text.splitlines()[0] else ",")
    fields = ("head", "head_name", "relation", "tail", "tail_name", "decision", "probability", "who", "time")
    return [picked(row, *fields) for row in rows]


def event_facts(events: Sequence[Mapping[str, Any]]) -> list[Facts]:
    """Events of a project's log."""
    return [picked(event, "kind", "head", "tail", "who", "time") for event in events]


# Questions on the command line


def ask(folder: Path) -> Facts:
    """A dozen and more questions."""
    umls, people, names = umls_file(folder), people_file(folder), folder / "heads.txt"
    names.write_text("APT28\nFIN7\n")
    succeeds("data", "compile", umls, "--out", folder / "compiled")
    decisions = Path(shutil.copy(DECISIONS, folder))
    adapts = ["--reference", "virus => cell", "--reference", "fungus => plant"]
    questions: dict[str, list[object]] = {
        "examples": ["attack", *GROUPS, "--head", "Sandworm Team", "--explain"],
        "heads of a tail": ["attack", *GROUPS, "--tail", "Linux", "--explain-full", "--top", 3],
        "one example": ["attack", "--reference", "APT38 => Windows", "--heads", names, "--top", 5],
        "a wrong pair": ["attack", *GROUPS, "--not", "FIN7 => Linux", "--head", "Sandworm Team"],
        "without names": ["attack", *GROUPS, "--head", "Sandworm Team", "--no-names"],
        "all pairs of a type": ["attack", *GROUPS, "--of-type", "group", "--top", 20],
        "a project": ["attack", "--project", decisions, "--project-name", "targets", "--head", "Sandworm Team"],
        "a relation": ["attack", "--relation", "group_uses_tool", "--head", "FIN7", "--explain"],
        "known ones too": ["attack", "--relation", "group_uses_tool", "--head", "FIN7", "--with-known", "--shots", 5],
        "a type": ["attack", "--relation", "group_uses_tool", "--head", "FIN7", "--candidates", "malware"],
        "constraints": ["attack", *GROUPS, "--head", "FIN7", "--head", "APT28", "--constraint", "inverse-functional"],
        "a range": ["umls", "--relation", "precedes", "--candidates", "full", "--head", "cell_function"],
        "a file": [umls, *adapts, "--head", "alga", "--explain"],
        "a compiled file": [folder / "compiled", *adapts, "--head", "alga", "--candidates", "all"],
        "a header": [people, "--reference", "ann => norway", "--head", "dan", "--head", "eve"],
    }
    return {name: row_facts(succeeds("ask", *words, "--json").json) for name, words in questions.items()}


def complete(folder: Path) -> Facts:
    """The missing pairs of two relations of `umls`."""
    found = {}
    for relation in ("complicates", "precedes"):
        out = folder / f"{relation}.tsv"
        succeeds("complete", "umls", "--relation", relation, "--per-head", 5, "--top", 150, "--out", out)
        lines = [line for line in out.read_text().splitlines() if not line.startswith("#")]
        rows = csv.DictReader(lines, delimiter="\t")
        found[relation] = [
            {**picked(row, "head", "tail"), **{name: float(row[name]) for name in ("rank", "score", "probability")}}
            for row in rows
        ]
    return found


def graphs(folder: Path) -> Facts:
    """What the commands say about graphs: counts, odd triples, relations between two entities."""
    umls, people = umls_file(folder), people_file(folder)
    checked = succeeds("data", "check", umls, "--json").json
    read = succeeds("data", "check", people, "--json").json
    bench, new = folder / "bench", folder / "new.tsv"
    succeeds("data", "carve", umls, "--smallest", 50, "--largest", 300, "--out", bench)
    carved = succeeds("data", "info", bench, "--json").json
    new.write_text("alga\tisa\tplant\nvirus\tcauses\talga bloom\n")
    grown = succeeds("data", "append", bench, new, "--json").json
    odd = succeeds("check", "umls", "--top", 20, "--json").json
    related = succeeds("relations", "attack", "G0046", "S0030", "--top", 5, "--json").json
    return {
        "umls": succeeds("data", "info", "umls", "--json").json["counts"],
        "catalogue": [row["name"] for row in succeeds("data", "list", "--json").json],
        "checked": {**picked(checked, "counts"), "tasks": sorted(checked["possible_tasks"])},
        "read": picked(read, "counts", "columns", "first_triples"),
        "carved": {"counts": carved["counts"], "tasks": [task["relation"] for task in carved["tasks"]]},
        "grown": picked(grown, "entities", "relations", "triples", "duplicates"),
        "odd": [picked(row, "head", "relation", "tail", "oddness") for row in odd],
        "related": [picked(row, "relation", "fit", "known") for row in related],
    }


# Decisions


def decisions(folder: Path) -> Facts:
    """A project file of version 0.3 opens and exports the same rows."""
    file = Path(shutil.copy(DECISIONS, folder))
    listed = succeeds("project", "list", file, "--json").json
    found: Facts = {
        "projects": [picked(row, "name", "references", "accepted", "rejected", "conflicts", "events") for row in listed]
    }
    for name, last in (("targets", "csv"), ("similar tools", "stix.json")):  # platforms are no objects of STIX
        found[name] = {"log": event_facts(succeeds("project", "log", file, "--project", name, "--json").json)}
        for suffix in dict.fromkeys(("csv", "nt", "json", last)):
            out = folder / f"{name}.{suffix}"
            succeeds("project", "export", file, "--project", name, "--out", out, "--relation", "uses")
            found[name][suffix] = _export_facts(suffix, out.read_text())
    return found


def _export_facts(suffix: str, text: str) -> list[Any]:
    if suffix == "nt":
        return sorted(text.splitlines())
    if suffix == "json":
        return event_facts(json.loads(text)["log"])
    if suffix == "stix.json":
        objects = json.loads(text)["objects"]
        names = {each["id"]: each.get("name") for each in objects}
        links = [each for each in objects if each["type"] == "relationship"]
        return sorted([names[each["source_ref"]], names[each["target_ref"]]] for each in links)
    return table_facts(text)


# HTTP


def http(folder: Path) -> Facts:
    """The answers of a server to its main requests, and its refusals."""
    with serving("attack", folder, Path(shutil.copy(DECISIONS, folder))) as server:
        return {"answers": _answers(server), "projects": _project_answers(server), "refusals": _refusals(server)}


def _answers(server: Server) -> Facts:
    get = server.get
    about, entity = get("/about"), get("/entity?id=FIN7")
    listed, example = get("/relations?q=tool"), get("/example?number=3")
    first = get("/predict", {"references": PAIRS, "heads": ["Sandworm Team"], "explain": True, "k": 3})
    every = get("/predict", {"references": PAIRS, "heads_of_type": "group", "k": 15})
    known = get("/predict", {"relation": "group_uses_tool", "heads": ["FIN7"], "exclude_known": False})
    heads = get("/predict", {"references": PAIRS, "tails": ["Linux"], "rejected": [["FIN7", "Linux"]]})
    reasons = get("/explain", {"references": PAIRS, "head": "FIN7", "tail": "Windows"})
    return {
        "health": get("/health")["status"],
        "about": {"graph": about["graph"], "relations": sorted(about["relations"]["graph"]), "model": about["model"]},
        "entities": [picked(each, "id", "name") for each in get("/entities?q=apt3")],
        "types": [picked(each, "name", "members") for each in get("/types?q=m")],
        "relations": [picked(each, "relation", "name", "pairs", "heads") for each in listed["relations"]],
        "entity": {
            **picked(entity, "id", "name", "types", "edges_in_all"),
            "relations": [picked(each, "relation", "inverse", "count") for each in entity["relations"]],
        },
        "example": {"relation": example["relation"], "heads": [each["id"] for each in example["heads"]]},
        "predict": {
            "trust": picked(first["trust"], "found", "tested"),
            "sets": [picked(each, "asked", "size", "level") for each in first["sets"]],
            "rows": row_facts(first["predictions"]),
        },
        "predict pairs": {"heads": every["heads_in_all"], "rows": row_facts(every["predictions"])},
        "predict known": row_facts(known["predictions"]),
        "predict heads": row_facts(heads["predictions"]),
        "explain": reason_facts(reasons),
    }


def _project_answers(server: Server) -> Facts:
    """A curator's work with a project; the changes come last."""
    get = server.get
    listed, number = get("/projects")["projects"], get("/projects")["projects"][0]["number"]
    of_project = f"/projects/{number}"
    question = {"references": PAIRS, "heads": ["Sandworm Team"], "k": 4, "project": number}
    found = {
        "list": [picked(each, "name", "references", "accepted", "rejected", "conflicts") for each in listed],
        "log": event_facts(get(f"{of_project}/log")["log"]),
        "export": table_facts(get(f"{of_project}/export?format=csv")),
        "adjusted": row_facts(get("/predict", question)["predictions"]),
    }
    following = get(f"{of_project}/next", {"heads_of_type": "group", "count": 20, "k": 5})
    fields = ("head", "tail", "rank", "score", "probability")
    found["next"] = [picked(each, *fields) for each in following["suggestions"]]
    made = get("/projects", {"name": "new", "references": PAIRS, "who": "ann"})
    of_new = f"/projects/{made['number']}"
    decision = {"head": "FIN7", "tail": "Windows", "decision": "accepted", "probability": 0.9}
    get(f"{of_new}/decisions", {"decisions": [decision], "who": "ann"})
    get(f"{of_new}/decisions", {"decisions": [{**decision, "decision": "rejected"}], "who": "bob"})
    get(f"{of_new}/undo", {"who": "bob"})
    found["new"] = [picked(each, "kind", "head", "tail", "who") for each in get(f"{of_new}/log")["log"]]
    return found


def _refusals(server: Server) -> Facts:
    asked = {"references": PAIRS, "heads": ["FIN7"]}
    requests: dict[str, tuple[str, object, bytes | None]] = {
        "an unknown path": ("/nothing", None, None),
        "an unknown entity": ("/entity?id=nobody", None, None),
        "an unknown head": ("/predict", {**asked, "heads": ["nobody"]}, None),
        "no references": ("/predict", {"heads": ["FIN7"]}, None),
        "an unknown relation": ("/predict", {"relation": "nothing", "heads": ["FIN7"]}, None),
        "an unknown field": ("/predict", {**asked, "colour": 1}, None),
        "too many tails": ("/predict", {**asked, "k": 100_000}, None),
        "no JSON": ("/predict", None, b"{"),
        "an unknown project": ("/projects/99/log", None, None),
    }
    return {name: server.ask(*request)[0] for name, request in requests.items()}


# Ranks


def _ranks(benchmark: fewlink.Benchmark, trail: Any) -> Facts:
    """The rank of each true tail of the dev split by each scorer, in the order of `SCORERS`."""
    names, found = benchmark.graph.entities, dict[str, dict[str, list[float]]]()
    for scorer in SCORERS:
        chosen = trail if scorer == "trail" else fewlink.learning_free(scorer, benchmark.graph)
        for task in fewlink.evaluate(benchmark, chosen, fewlink.Protocol(split="dev", shots=3)).tasks:
            of_task = found.setdefault(task.relation, {})
            for (head, tail), rank in zip(task.queries.tolist(), task.ranks.tolist(), strict=True):
                of_task.setdefault(f"{names[head]} {names[tail]}", []).append(rank)
    return {relation: {"ranks of queries": ranks} for relation, ranks in found.items()}


def evaluate_umls(folder: Path) -> Facts:
    """Ranks on dev of `umls`, and the command's figures of the same scorers under other protocols."""
    named = [word for scorer in SCORERS for word in ("--scorer", scorer)]
    grid = ["--split", "dev", "--shots", 1, "--candidates", "open", "--candidates", "paper", "--draws", 1]
    records = succeeds("evaluate", "umls", *named, *grid, "--results", folder / "results", "--json").json
    figures = [
        {**picked(each, "model", "candidates", "queries"), "mrr": each["metrics"]["micro"]["mrr"]} for each in records
    ]
    return {"ranks": _ranks(fewlink.open_benchmark("umls"), fewlink.load("umls").scorer), "figures": figures}


def evaluate_nell_one(folder: Path) -> Facts:
    """Ranks of the first 40 queries of each dev relation of NELL-One, where it is present."""
    place = nell_one()
    assert place is not None
    linker = fewlink.load(str(place))
    tasks = [dataclasses.replace(task, pairs=task.pairs[:43]) for task in linker.benchmark.split("dev")]
    first = dataclasses.replace(linker.benchmark, tasks={**linker.benchmark.tasks, "dev": tasks})
    return _ranks(first, linker.scorer)


# Training


def fit(folder: Path) -> Facts:
    """A fit of `umls` by steps: with minutes in plenty, time decides nothing but how long an embedding model trains.

    Therefore no embedding model is mixed in.
    """
    run = folder / "run"
    words = ["--minutes", 300, "--set", "steps=20", "--no-mix", "--seed", 3, "--json"]
    fitted = succeeds("fit", umls_file(folder), "--out", run, *words).json
    rows = succeeds("ask", run, "--reference", "virus => cell", "--head", "alga", "--json").json
    kept = succeeds("ask", run, "--relation", "treats", "--head", "antibiotic", "--json").json
    return {
        "deployed": fitted["deployed"],
        "figures": {name: picked(each, "relations", "queries", "mrr") for name, each in fitted["figures"].items()},
        "held out": {name: picked(each, "relations", "queries", "mrr") for name, each in fitted["held_out"].items()},
        "a new relation": row_facts(rows),
        "a relation": row_facts(kept),
    }


def train(folder: Path) -> Facts:
    """A few steps of four models on `umls`, and what the run then answers."""
    found = {}
    for model, steps in (("fsrl", 20), ("gmatching-maxp", 20), ("metar", 20), ("trail", 6)):
        run = folder / model
        words = ["--set", f"steps={steps}", "--seed", 1, "--json"]
        trained = succeeds("train", "umls", "--model", model, "--out", run, *words).json[0]
        question = ["--relation", "precedes", "--candidates", "full", "--head", "cell_function", "--top", 3]
        asked = succeeds("ask", run, *question, "--json").json
        found[model] = {"mrr": trained["best"]["mrr"], "rows": [picked(row, "head", "tail") for row in asked]}
    return found


def fsrl(folder: Path) -> Facts:
    """Scores and gradients of FSRL by `reference.py`, and by the fast model with the same parameters."""
    from fewlink.models.fsrl import reference

    draw = torch.Generator().manual_seed(5)
    graph, d = fewlink.open_benchmark("umls").graph, 6
    entities, relations = (
        torch.randn(n, d, generator=draw, dtype=torch.float64).requires_grad_()
        for n in (len(graph.entities), 2 * len(graph.relations))
    )
    vectors: Any = SimpleNamespace(entities=entities, relations=relations, dim=d)
    references, queries = torch.randint(len(graph.entities), (8, 2), generator=draw).split([3, 5])
    model = reference.FSRL(d).double()
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=draw, dtype=torch.float64) / 2
    values = dict(model.named_parameters())
    answers = {
        "reference": model(references, queries, reference.Background.of(graph, vectors, N=5)),
        "fast": _fast_fsrl(values, graph, vectors, references, queries),
    }
    found: Facts = {}
    for name, (scores, reconstruction) in answers.items():
        leaves = {"entities": entities, "relations": relations, **values}
        gradients = torch.autograd.grad(scores.cos().sum() + reconstruction, list(leaves.values()))
        sizes = {leaf: each.norm().item() for leaf, each in zip(leaves, gradients, strict=True)}
        found[name] = {"scores": scores.tolist(), "reconstruction": reconstruction.item(), "gradients": sizes}
    return found


def _fast_fsrl(values: Mapping[str, Tensor], graph: Any, vectors: Any, references: Tensor, queries: Tensor) -> Any:
    """Scores and reconstruction loss of the fast model with the parameters of `reference.py`."""
    from torch.func import functional_call

    from fewlink.models.fsrl.model import build
    from fewlink.models.fsrl.neighbourhood import Neighbourhood

    d = vectors.entities.shape[1]
    names = {
        "encoder.W_rt.": "encoder.attention.projection.",
        "encoder.u_rt.weight": "encoder.attention.u",
        "aggregator.rnn_encoder.": "aggregator.recurrence.encoder.",
        "aggregator.rnn_decoder.": "aggregator.reconstruction.decoder.",
        "aggregator.W_R.": "aggregator.attention.projection.",
        "aggregator.u_R.weight": "aggregator.attention.u",
    }
    parameters = {}
    for theirs, ours in names.items():
        for name, value in values.items():
            if name.startswith(theirs):
                parameters[name.replace(theirs, ours)] = value[0] if ours.endswith(".u") else value

    # Of the 2w units of Eq. 8's cell, only the first w are read.
    matching = [name for name in values if name.startswith("matcher.")]
    cell = {name: values[name].unflatten(0, (4, 4 * d))[:, : 2 * d].flatten(0, 1) for name in matching}
    from_state, from_reference = cell["matcher.rnn_match.weight_hh"].split(2 * d, 1)
    parameters["matcher.from_query"] = cell["matcher.rnn_match.weight_ih"]
    parameters["matcher.from_state"] = from_state
    parameters["matcher.from_reference"] = from_reference
    parameters["matcher.bias"] = cell["matcher.rnn_match.bias_ih"] + cell["matcher.rnn_match.bias_hh"]
    around = Neighbourhood.of(graph, vectors, max_neighbours=5)
    model: nn.Module = build("fsrl", d).double()
    ids, places = torch.cat([references, queries]).unique(return_inverse=True)
    inputs = (ids, places[None, :3], places[None, 3:], around)
    scores, reconstruction = functional_call(model, parameters, inputs)
    return scores[0], reconstruction[0]


THINGS: dict[str, Callable[[Path], Facts]] = {
    "ask": ask,
    "complete": complete,
    "graphs": graphs,
    "decisions": decisions,
    "http": http,
    "evaluate-umls": evaluate_umls,
    "evaluate-nell-one": evaluate_nell_one,
    "fit": fit,
    "train": train,
    "fsrl": fsrl,
    "mistakes": mistakes,
}
