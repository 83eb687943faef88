"""One tiny folder of every kind that fewlink stores, and random damages of them.

Each trial damages a copy, of the files of its kind each in turn: bits flipped, a block set to zero, truncated,
extended, deleted, exchanged with another or with that of a twin with other content, a JSON value replaced, a folder
such as `best/` deleted or replaced by the twin's. Then it is loaded as the commands do it. Allowed: an error of
fewlink, or exactly the content as before. `crafted` trials mend all checksums after the damage, as an attacker would:
anything but a traceback is allowed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import fewlink
from fewlink.core.errors import FewlinkError
from fewlink.core.storage import MANIFEST
from fewlink.curation.store import ProjectFile
from fewlink.evaluation.curves import CurvePoint, LearningCurve
from fewlink.evaluation.evaluator import Evaluation, Protocol, TaskRanks
from fewlink.evaluation.maps import PairMap
from fewlink.evaluation.ranks import QueryRanks, read_ranks
from fewlink.evaluation.records import RecordStore, make_record
from fewlink.fitting.fit import replace_run
from fewlink.fitting.record import read_record, record_id, write_record
from fewlink.graph import Graph, TypeTable, Vocabulary
from fewlink.linker import saving
from fewlink.linker.calibration import calibration_of, open_calibration, shipped_calibration
from fewlink.linker.complete import HEADS_PER_BATCH, answer_batches
from fewlink.models.embeddings import Embeddings, EmbeddingSettings, train
from fewlink.models.embeddings.checkpoint import load_state, triples_digest
from fewlink.models.family import NoVectors
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.models.trail import built_in, shipped
from fewlink.models.trail.settings import TrailSettings
from fewlink.tasks import Benchmark, Task
from fewlink.training.checkpoints import State, add_best, load_best, load_last, save_best, save_last
from fewlink.training.folder import BENCHMARK, FIT_FORMAT
from fewlink.training.metrics_log import MetricsLog
from fewlink.training.run import Deployed, RunConfig, benchmark_of, start_or_continue, vectors_of
from fewlink.verification.verify import verify

ENTITIES, RELATIONS, DIM = 12, 3, 4
OPTIONAL = ("metrics.jsonl",)  # a log, which nothing is read from
RESULTS = (".jsonl", ".ranks.npz")  # a deleted file of results is the same as one that was never stored


class Store(NamedTuple):
    """A kind of folder: how one is made in a folder from a seed, and what is loaded of it."""

    name: str
    make: Callable[[Path, int], Any]
    load: Callable[[Path], Any]


def small_graph(seed: int) -> Graph:
    rng = np.random.default_rng(seed)
    entities = [f"entity {i} é" for i in range(ENTITIES)]
    relations = [f"relation {i}" for i in range(RELATIONS)]
    limits = [ENTITIES, RELATIONS, ENTITIES]
    triples = np.stack([rng.integers(0, limit, 40) for limit in limits], 1).astype(np.int32)
    types = TypeTable.of([b"one", b"two"], np.arange(ENTITIES), rng.integers(0, 2, ENTITIES), ENTITIES)
    labels = Vocabulary.of([f"label of {name}" for name in (*entities, *relations)])
    return Graph.of(Vocabulary.of(entities), Vocabulary.of(relations), triples, types=types, labels=labels)


def small_benchmark(seed: int) -> Benchmark:
    rng, graph = np.random.default_rng(seed + 100), small_graph(seed)

    def task(name: str) -> Task:
        pairs = np.unique(rng.integers(0, ENTITIES, (6, 2)).astype(np.int32), axis=0)
        return Task(name, pairs, pairs, np.arange(ENTITIES, dtype=np.int32))

    return Benchmark(
        "small", graph, {split: [task(f"{split} {i}") for i in range(2)] for split in ("train", "dev", "test")}
    )


def small_vectors(seed: int, model: str = "transe") -> Embeddings:
    random = torch.Generator().manual_seed(seed)
    sizes = (ENTITIES, DIM), (2 * RELATIONS, DIM)
    return Embeddings(*(torch.randn(size, generator=random) for size in sizes), model)


def make_run(folder: Path, seed: int, model: str = "fsrl") -> None:
    """A run with everything that a run may have, but untrained."""
    benchmark, random = small_benchmark(seed), torch.Generator().manual_seed(seed)
    vectors = small_vectors(seed)
    config = RunConfig.of(benchmark, vectors, FewShotSettings(model=model, seed=seed))
    folder.mkdir(parents=True)
    start_or_continue(folder, config, vectors)
    record = {"format": FIT_FORMAT, "asked": {"minutes": 1.0, "seed": seed}, "notes": [], "seconds": {"answering": 1.5}}
    write_record(folder, record)
    weights = [{"w": torch.randn(3, 3, generator=random), "b": torch.randn(3, generator=random)} for _ in range(2)]
    state = State(4, 2, {"mrr": 0.5}, 1, 2.5, {"step": 4, "loss": 0.25})
    save_last(folder, weights[1], {"w.step": torch.ones(1)}, state)
    save_best(folder, weights[0], 2)
    MetricsLog(folder).add(state.line)
    benchmark.save(folder / BENCHMARK)
    Deployed(small_benchmark(seed + 50), small_vectors(seed + 50)).save(folder)
    save_calibration(folder, benchmark, 2, seed)


def make_fit(folder: Path, seed: int) -> None:
    """A fit that was killed just before other weights were deployed."""
    benchmark, random = small_benchmark(seed), torch.Generator().manual_seed(seed)
    folder.mkdir(parents=True)
    record = {"format": FIT_FORMAT, "asked": {"minutes": 1.0, "seed": seed}, "notes": [], "seconds": {"answering": 1.5}}
    write_record(folder, record)
    Deployed(small_benchmark(seed + 50), NoVectors()).save(folder, record_id(folder, record))
    benchmark.save(folder / BENCHMARK)
    weights = [{"w": torch.randn(3, 3, generator=random)} for _ in range(2)]
    config = RunConfig.of(benchmark, NoVectors(), TrailSettings(seed=seed))
    replace_run(folder, config, weights[0], 3, record_id(folder, record))
    save_calibration(folder, benchmark, 3, seed)
    add_best(folder, weights[1], 4)


def save_calibration(folder: Path, benchmark: Benchmark, step: int, seed: int) -> None:
    calibration = shipped_calibration()
    assert calibration is not None
    dataclasses.replace(calibration, benchmark=benchmark.fingerprint, step=step, error=seed / 100).save(folder)


def load_run(folder: Path) -> Any:
    """What commands read of a run: to answer, to continue, and to write its card."""
    return saving.read_model(folder, _load_run, complete=True)


def _load_run(folder: Path) -> Any:
    config, benchmark = RunConfig.read(folder), benchmark_of(folder)
    best = load_best(folder)
    calibration = calibration_of(folder, benchmark, best[1])
    parts = (vectors_of(folder), best, load_last(folder), calibration, Deployed.open(folder), read_record(folder))
    return config, benchmark, *parts


def make_model(folder: Path, seed: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        make_run(Path(place) / "run", seed)
        saving.save(Path(place) / "run", small_benchmark(seed), folder)


def load_model(folder: Path) -> Any:
    benchmark, best = saving.benchmark_of(folder), load_best(folder)
    calibration = calibration_of(folder, benchmark, best[1])
    return RunConfig.read(folder), benchmark, best, vectors_of(folder), calibration, Deployed.open(folder)


STATE = EmbeddingSettings(model="distmult", dim=DIM, epochs=1, batch_size=16, negatives=2)


def make_state(folder: Path, seed: int) -> None:
    folder.mkdir(parents=True)
    triples = small_graph(seed).triples()
    train(triples, ENTITIES, RELATIONS, STATE, resume=folder / "state.safetensors")


def load_small_state(folder: Path) -> Any:
    digest = triples_digest(small_graph(0).triples(), ENTITIES, RELATIONS)
    return load_state(folder / "state.safetensors", STATE, digest, "cpu")


def completed(folder: Path, seed: int) -> Iterator[list[Any]]:
    """The batches of a completion: those that an interrupted one has kept, then new ones."""

    def answer(heads: Sequence[int]) -> list[Any]:
        return [[head, (head + seed) / 7] for head in heads]

    return answer_batches(range(5 * HEADS_PER_BATCH), answer, {"model": "trail", "top": 5}, folder / "out.tsv")


def make_completion(folder: Path, seed: int) -> None:
    """What an interrupted `fewlink complete` has kept."""
    folder.mkdir(parents=True)
    list(itertools.islice(completed(folder, seed), 3))


def make_results(folder: Path, seed: int) -> None:
    store, rng = RecordStore(folder), np.random.default_rng(seed)
    for number in range(3):
        protocol = Protocol(shots=number + 1, seed=seed)
        queries = rng.integers(0, ENTITIES, (20, 2)).astype(np.int32)
        tasks = [TaskRanks("r", queries, rng.integers(1, 10, 20).astype(float), np.full(20, 12), 12)]
        evaluation = Evaluation(protocol, tasks, 0.5)
        record = make_record(evaluation, benchmark="small", data_sha256="0" * 64, model="rules", config={"x": [1, 2.5]})
        store.add(record.model_copy(update={"command": "c"}), ranks=QueryRanks.of(evaluation))
    facts = {"benchmark": "small", "model": "fsrl", "seed": seed, "shots": 1, "candidates": "full", "settings": {}}
    points = [CurvePoint(step=5, dev={"mrr": 0.25}, test={"mrr": rng.random()})]
    store.add(LearningCurve(**facts, points=points, data_sha256="0" * 64, command="c"))
    place = [(rng.random(), rng.random(), "positive"), (rng.random(), rng.random(), "negative")]
    shown = {"relation": "r", "seed": seed, "shots": 1, "silhouette": 0.5, "silhouette_of_map": 0.25, "points": place}
    more = {"benchmark": "small", "model": "fsrl", "version": "1", "data_sha256": "0" * 64, "command": "c"}
    store.add(PairMap(**shown, **more))


def load_results(folder: Path) -> Any:
    """Records with their ranks, as they are compared, curves and maps; ranks that are lost are asked for."""
    store, found = RecordStore(folder), []
    for file, record in store.places:
        ranks = read_ranks(file, record)
        if ranks is None:
            raise FewlinkError(f"the ranks of {record.model} are not stored")
        found.append((record.model_dump(), ranks))
    return found, [each.model_dump() for each in (*store.curves, *store.maps)]


def make_project(folder: Path, seed: int) -> None:
    folder.mkdir(parents=True)
    with ProjectFile(folder / "project.decisions") as file:
        file.add_project(f"relation {seed}", [("a", "b"), ("c", "d")], who="ada")
        file.decide(f"relation {seed}", [("accepted", f"e{i}", f"f{i}") for i in range(20)], who="ada")
        file.undo(f"relation {seed}", who="ada")


def load_project(folder: Path) -> Any:
    with ProjectFile(folder / "project.decisions", must_exist=True, write=False) as file:
        return [(each, file.log(each.number), file.decisions(each.number)) for each in file.projects()]


def make_weights(folder: Path, seed: int) -> None:
    folder.mkdir(parents=True)
    content = (Path(fewlink.__file__).parent / "builtin" / shipped.BUILT_IN).read_bytes()
    (folder / shipped.BUILT_IN).write_bytes(content if seed == 0 else content[:-4] + bytes(4))


def load_weights(folder: Path) -> Any:
    before, built_in.files = built_in.files, lambda package: _Package(folder)  # type: ignore[attr-defined]
    try:
        return shipped.built_in_weights(shipped.BUILT_IN)
    finally:
        built_in.files = before  # type: ignore[attr-defined]


class _Package(type(Path())):  # type: ignore[misc]
    """A folder in the place of the installed package's `builtin`."""

    def __truediv__(self, name: Any) -> Any:
        return self if name == "builtin" else Path(str(self)) / name


def make_calibration(folder: Path, seed: int) -> None:
    folder.mkdir(parents=True)
    calibration = shipped_calibration()
    assert calibration is not None
    dataclasses.replace(calibration, step=seed).write(folder / "file.json")


STORES = {
    store.name: store
    for store in (
        Store("graph", lambda folder, seed: small_graph(seed).save(folder), Graph.open),
        Store("benchmark", lambda folder, seed: small_benchmark(seed).save(folder), Benchmark.open),
        Store("embeddings", lambda folder, seed: small_vectors(seed).save(folder, "f"), Embeddings.open),
        Store("state", make_state, load_small_state),
        Store("run", make_run, load_run),
        Store("fit", make_fit, load_run),
        Store("model", make_model, load_model),
        Store("results", make_results, load_results),
        Store("calibration", make_calibration, lambda folder: open_calibration(folder / "file.json")),
        Store("weights", make_weights, load_weights),
        Store("project", make_project, load_project),
        Store("completion", make_completion, lambda folder: list(completed(folder, 0))),
    )
}


def content_of(value: Any) -> Any:
    """Something that is equal for equal content: arrays and tensors by their bytes."""
    if isinstance(value, Tensor):
        value = value.detach().cpu().contiguous()
        return str(value.dtype), tuple(value.shape), value.flatten().view(torch.uint8).numpy().tobytes()
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, NoVectors):
        return "no vectors"
    if isinstance(value, Vocabulary):
        return list(value), [value.find(name) for name in value]
    if isinstance(value, TypeTable):
        return content_of((value.names, value.offsets, value.types))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [f.name for f in dataclasses.fields(value) if f.init and f.name not in ("source",)]
        return type(value).__name__, [(name, content_of(getattr(value, name))) for name in fields]
    if isinstance(value, dict):
        return [(str(key), content_of(value[key])) for key in sorted(value, key=str)]
    if isinstance(value, list | tuple):
        return [content_of(each) for each in value]
    return repr(value)


# Damage


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))


def damage(folder: Path, twin: Path, rng: np.random.Generator, turn: int) -> str:
    """Damage a folder at random, the file whose turn it is if it can be damaged so; says how."""
    files = files_in(folder)
    for number in range(100):
        file = files[turn % len(files)] if number < 10 else _one(files, rng)
        kind = _one((*["flip"] * 3, *[kind for kind in DAMAGES if kind != "flip"]), rng)
        if done := DAMAGES[kind](folder, twin, file, rng):
            return f"{kind} {file.relative_to(folder)}: {done}"
    raise RuntimeError("nothing could be damaged")


def _one(items: Iterable[Any], rng: np.random.Generator) -> Any:
    items = list(items)
    return items[int(rng.integers(len(items)))]


def flip(folder: Path, twin: Path, file: Path, rng: np.random.Generator) -> str:
    content = bytearray(file.read_bytes())
    if not content:
        return ""
    places = [int(at) for at in rng.integers(0, len(content), rng.integers(1, 4))]
    for at in places:
        content[at] ^= 1 << int(rng.integers(8))
    file.write_bytes(content)
    return f"bits at {places}"


def zero(folder: Path, twin: Path, file: Path, rng: np.random.Generator) -> str:
    content = bytearray(file.read_bytes())
    if not content:
        return ""
    begin = int(rng.integers(len(content)))
    end = min(len(content), begin + int(rng.integers(1, 512)))
    content[begin:end] = bytes(end - begin)
    file.write_bytes(content)
    return f"bytes {begin} to {end}"


def cut(folder: Path, twin: Path, file: Path, rng: np.random.Generator) -> str:
    content = file.read_bytes()
    if not content:
        return ""
    lines = [at + 1 for at, byte in enumerate(content) if byte == ord("\n")]
    at = _one(lines, rng) if lines and rng.random() < 0.2 else int(rng.integers(len(content)))
    file.write_bytes(content[:at])
    return f"at {at} of {len(content)}"


def extend(folder: Path, twin: Path, file: Path, rng: np.random.Generator) -> str:
    content = file.read_bytes()
    more = content[: int(rng.integers(len(content) + 1))] if rng.random() < 0.5 else rng.bytes(int(rng.integers(1, 99)))
    file.write_bytes(content + more)
    return f"by {len(more)}"


def delete(folder: Path, twin: Path, file: Path, rng: np.random.Generator) -> str:
    if file.name in OPTIONAL or file.name.endswith(RESULTS):
        return ""
    file.unlink()
    return "deleted"


def exchange(folder: Path, twin: Path, file: Path, rng: np.random.Generator) -> str:
    same = [each for each in files_in(folder) if each.suffix == file.suffix]
    others = [each for each in same if each != file]
    if not others:
        return ""
    other = _one(others, rng)
    mine, theirs = file.read_bytes(), other.read_bytes()
    file.write_bytes(theirs)
    other.write_bytes(mine)
    return f"with {other.relative_to(folder)}"


def from_twin(folder: Path, twin: Path, file: Path, rng: np.random.Generator) -> str:
    theirs = twin / file.relative_to(folder)
    if not theirs.exists() or len(files_in(folder)) == 1 or file.name.endswith(RESULTS):  # all of it: another one
        return ""
    shutil.copyfile(theirs, file)
    return "the twin's"


def part(folder: Path, twin: Path, file: Path, rng: np.random.Generator) -> str:
    """Replace a folder inside by the twin's, or by another folder of the same format."""
    inside = [path.parent for path in files_in(folder) if path.name == MANIFEST and path.parent != folder]
    if not inside:
        return ""
    mine = _one(inside, rng)
    formats = {each: json.loads((each / MANIFEST).read_text())["format"] for each in inside}
    others = [each for each in inside if formats[each] == formats[mine] and each != mine]
    other = _one([twin / mine.relative_to(folder), *others], rng)
    with tempfile.TemporaryDirectory() as place:
        shutil.copytree(other, Path(place) / "copy")
        shutil.rmtree(mine)
        shutil.copytree(Path(place) / "copy", mine)
    return f"{mine.relative_to(folder)} by {other}"


def remove(folder: Path, twin: Path, file: Path, rng: np.random.Generator) -> str:
    """Delete a folder inside."""
    inside = [path.parent for path in files_in(folder) if path.name == MANIFEST and path.parent != folder]
    if not inside:
        return ""
    shutil.rmtree(mine := _one(inside, rng))
    return f"folder {mine.relative_to(folder)} deleted"


def replace_json(folder: Path, twin: Path, file: Path, rng: np.random.Generator) -> str:
    """Replace or remove a value of a JSON file, or of a line of one."""
    text = file.read_bytes()
    lines = text.split(b"\n") if file.suffix == ".jsonl" else [text]
    at = int(rng.integers(len(lines)))
    try:
        content = json.loads(lines[at])
    except ValueError:
        return ""
    done = _replace_value(content, rng)
    lines[at] = json.dumps(content).encode()
    file.write_bytes(b"\n".join(lines))
    return done


def _replace_value(content: Any, rng: np.random.Generator) -> str:
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        for key in value if isinstance(value, dict) else range(len(value)):
            places.append((value, key))
            if isinstance(value[key], dict | list):
                walk(value[key])

    if not isinstance(content, dict | list) or not content:
        return ""
    walk(content)
    holder, key = _one(places, rng)
    before = holder[key]
    if isinstance(before, int | float) and not isinstance(before, bool) and rng.random() < 0.5:
        holder[key] = before + _one((1, -1, 0.5, -1000, 1e300), rng)
    elif rng.random() < 0.2:
        del holder[key]
        return f"without {key}"
    else:
        others = (None, True, 0, -1, 1 << 40, 1.5, float("nan"), "", "text", "../../etc/passwd", [], {}, [1], {"a": 1})
        holder[key] = _one(others, rng)
    return f"{key} = {json.dumps(holder[key])[:40]}"


DAMAGES: dict[str, Callable[[Path, Path, Path, np.random.Generator], str]] = {
    "flip": flip,
    "zero": zero,
    "cut": cut,
    "extend": extend,
    "delete": delete,
    "exchange": exchange,
    "twin": from_twin,
    "json": replace_json,
    "part": part,
    "remove": remove,
}


def craft(folder: Path, twin: Path, rng: np.random.Generator, turn: int) -> str:
    """Damage a folder, then mend the checksums of JSON files and manifests, inner folders first."""
    manifests = {path: json.loads(path.read_text()) for path in files_in(folder) if path.name == MANIFEST}
    done = damage(folder, twin, rng, turn)
    for path in files_in(folder):
        content = path.read_bytes()
        if path.suffix in (".json", ".jsonl", ".part") and path.name != MANIFEST:
            lines = [content] if path.suffix == ".json" else content.split(b"\n")
            path.write_bytes(b"\n".join(map(_mended, lines)))
        elif path.suffix == ".safetensors":
            path.write_bytes(_without_checksum(content))
    for path in sorted(manifests, key=lambda each: -len(each.parts)):
        with suppress(ValueError, OSError):
            manifest = json.loads(path.read_bytes())
            if not isinstance(manifest, dict):
                continue
            changed = _replace_value(manifest, rng) if rng.random() < 0.3 else ""
            for name, listed in manifest["files"].items() if isinstance(manifest.get("files"), dict) else ():
                if (file := path.parent / name).is_file() and isinstance(listed, dict) and not changed:
                    content = file.read_bytes()
                    listed.update(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
            manifest.pop("sha256", None)
            path.write_text(json.dumps({**manifest, "sha256": _sha256(manifest)}))
            done += f"; manifest {changed}" if changed else ""
    return done


def _mended(line: bytes) -> bytes:
    """JSON with the right checksum, if it has one."""
    with suppress(ValueError):
        content = json.loads(line)
        if isinstance(content, dict) and content.pop("sha256", None) is not None:
            lines = {"lines": content.pop("lines")} if "lines" in content else {}
            return json.dumps({**content, "sha256": _sha256(content), **lines}).encode()
    return line


def _without_checksum(content: bytes) -> bytes:
    """A file of tensors as it was before there were checksums."""
    with suppress(ValueError, KeyError, AttributeError, TypeError):
        end = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:end])
        del header["__metadata__"]["sha256"]
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text + content[end:]
    return content


def _sha256(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


# Trials


class Trial(NamedTuple):
    """A damage and what became of it: refused, same, silent, traceback, or unverified: refused, but not by verify."""

    store: str
    how: str
    outcome: str
    text: str = ""


class Trials:
    """Stores with their twins in a folder, damaged copies of which are loaded."""

    def __init__(self, folder: Path, names: Iterable[str] = ()) -> None:
        self.folder, self.stores = folder, [STORES[name] for name in names or STORES]
        self.content: dict[str, Any] = {}
        for store in self.stores:
            store.make(self._place(store.name, "one"), 0)
            store.make(self._place(store.name, "twin"), 1)
            work = self._copy(store)
            self.content[store.name] = content_of(store.load(work))
            found = verify(work)
            assert all(each.status != "damaged" for each in found), (store.name, found)

    def _place(self, name: str, which: str) -> Path:
        return self.folder / which / name

    def _copy(self, store: Store) -> Path:
        work = self.folder / "work" / store.name
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(self._place(store.name, "one"), work)
        return work

    def run(self, count: int, seed: int = 0, crafted: bool = False) -> list[Trial]:
        return [self.trial(seed * 1_000_003 + number, crafted) for number in range(count)]

    def trial(self, number: int, crafted: bool = False) -> Trial:
        rng = np.random.default_rng(number)
        store, turn = self.stores[number % len(self.stores)], number // len(self.stores)
        work = self._copy(store)
        how = f"{number}: " + (craft if crafted else damage)(work, self._place(store.name, "twin"), rng, turn)
        outcome, text = self._outcome(store, work, crafted)
        try:
            found = verify(work)
        except Exception:
            return Trial(store.name, how, "traceback", "verify: " + traceback.format_exc())
        if outcome == "refused" and all(each.status == "whole" for each in found) and not crafted:
            return Trial(store.name, how, "unverified", f"{text}\n{found}")
        return Trial(store.name, how, outcome, text)

    def _outcome(self, store: Store, work: Path, crafted: bool) -> tuple[str, str]:
        try:
            loaded = store.load(work)
            content = content_of(loaded)
        except FewlinkError as error:
            return "refused", str(error)
        except Exception:
            return "traceback", traceback.format_exc()
        return ("same" if crafted or content == self.content[store.name] else "silent"), ""


FAILED = ("silent", "traceback", "unverified")
