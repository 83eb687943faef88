"""Fuzzing of everything that reads a file: damaged and made-up inputs must give a result or the project's own error.

python benchmarks/fuzz.py [--inputs 500000] [--seed 0] [--reader NAME] [--out FOLDER] [--minutes 25] [--record]
python benchmarks/fuzz.py --guided [--reader NAME] [--minutes 10]

Inputs are changed copies of valid files: bytes, lines, tokens of the format, and values of JSON. An input is a pure
function of the seed, the reader and its number. Every exception other than fewlink's own, and every input that takes
over `SLOW` seconds of the processor, is printed and its input stored in the folder. The exit code is 1 if there is one.

With --guided, atheris chooses inputs of the readers of graphs by the lines of Python that they reach, each reader in a
process of its own. An input that takes over `SLOW` seconds, or over `MAX_MEGABYTES` of memory, is a failure too. It
starts from the inputs in `corpus/`, and adds those that reach new lines.
"""

from __future__ import annotations

import argparse
import bz2
import contextlib
import copy
import functools
import gzip
import io
import json
import lzma
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fewlink.core.errors import FewlinkError
from fewlink.core.files import MANIFEST, open_folder, read_json, sha256_json
from fewlink.curation import exports, imports
from fewlink.curation.store import ProjectFile
from fewlink.evaluation.records import RecordStore, read_records
from fewlink.graph import Graph, compile_graph
from fewlink.graph.stix import read_bundle
from fewlink.tasks.nell_layout import read_layout

MESSY = Path(__file__).parents[1] / "tests" / "graph" / "messy"  # files as people have them
SLOW = 5.0  # seconds of the processor for one input
LIMIT = 60.0  # seconds after which an input is given up
MAX_MEGABYTES = 1024  # of a process that reads one input
CORPUS = Path(__file__).parent / "corpus"
OUTCOMES = ("inputs", "accepted", "refused", "failures")
SHOWN = 10  # failures that are printed

TSV = b"head\trelation\ttail\nann\tlives\toslo\nbob\tlives\trome\nann\tknows\tbob\nrome\tin\titaly\noslo\tin\tnorway\n"
NT = b"<http://e/ann> <http://e/lives> <http://e/oslo> .\n_:b <http://e/in> <http://e/n#x> .\n<http://e/ann> " + (
    b'<http://www.w3.org/2000/01/rdf-schema#label> "Ann"@en .\n<http://e/a> <http://e/age> "3"^^<http://e/int> .\n'
)
TURTLE = b"""@prefix e: <http://e/> . @base <http://b/> .
e:ann e:lives e:oslo ; e:knows [ e:in e:rome ] , <#x> .
e:l e:has ( e:a "text"@en 1.5 true ) .
<< e:a e:b e:c >> e:said e:d .
"""
XML = b"""<?xml version="1.0"?><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://e/">
<rdf:Description rdf:about="http://e/ann"><e:lives rdf:resource="http://e/oslo"/><e:age>3</e:age>
<e:knows><rdf:Description rdf:nodeID="b"/></e:knows></rdf:Description></rdf:RDF>
"""
JSONLD = b"""{"@context": {"e": "http://e/"}, "@id": "e:ann", "e:lives": {"@id": "e:oslo"}, "e:age": 3,
 "e:knows": [{"@id": "e:bob"}, {"e:in": {"@list": [{"@id": "e:x"}]}}]}"""
SRJ = b"""{"head": {"vars": ["h", "r", "t"]}, "results": {"bindings": [
 {"h": {"type": "uri", "value": "http://e/a"}, "r": {"type": "uri", "value": "http://e/r"},
  "t": {"type": "bnode", "value": "b"}},
 {"h": {"type": "uri", "value": "http://e/a"}, "r": {"type": "uri", "value": "http://e/r"},
  "t": {"type": "literal", "value": "x", "xml:lang": "en"}}]}}"""
SRX = b"""<?xml version="1.0"?><sparql xmlns="http://www.w3.org/2005/sparql-results#"><head><variable name="h"/>
<variable name="r"/><variable name="t"/></head><results><result><binding name="h"><uri>http://e/a</uri></binding>
<binding name="r"><uri>http://e/r</uri></binding><binding name="t"><bnode>b</bnode></binding></result>
</results></sparql>
"""
RESULTS_TSV = b'?h\t?r\t?t\n<http://e/a>\t<http://e/r>\t<http://e/b>\n_:x\t<http://e/r>\t"lit"@en\n'
STIX = json.dumps(
    {
        "type": "bundle",
        "id": "bundle--1",
        "objects": [
            {
                "type": "intrusion-set",
                "id": "intrusion-set--1",
                "name": "Group",
                "modified": "2020-01-01T00:00:00Z",
                "external_references": [{"source_name": "mitre-attack", "external_id": "G0001"}],
            },
            {"type": "malware", "id": "malware--1", "name": "Mal", "x_mitre_platforms": ["Linux", "Windows"]},
            {"type": "attack-pattern", "id": "attack-pattern--1", "kill_chain_phases": [{"phase_name": "impact"}]},
            {
                "type": "relationship",
                "id": "relationship--1",
                "relationship_type": "uses",
                "source_ref": "intrusion-set--1",
                "target_ref": "malware--1",
            },
            {"type": "x-mitre-tactic", "id": "x-mitre-tactic--1", "x_mitre_shortname": "impact", "revoked": False},
        ],
    }
).encode()
LOG = {
    "format": exports.JSON_FORMAT,
    "name": "lives",
    "description": "where people live",
    "made": "2026-01-01T00:00:00.000Z",
    "log": [
        {"number": 1, "kind": "reference", "head": "ann", "tail": "oslo", "undoes": None, "who": "x", "time": "t1"},
        {"number": 2, "kind": "accepted", "head": "bob", "tail": "rome", "undoes": None, "who": "x", "time": "t2"},
        {"number": 3, "kind": "undo", "head": "bob", "tail": "rome", "undoes": 2, "who": "y", "time": "t3"},
    ],
}
LAYOUT: dict[str, Any] = {
    "train_tasks.json": {"born": [["ann", "born", "rome"], ["bob", "born", "oslo"]]},
    "dev_tasks.json": {"likes": [["ann", "likes", "bob"]]},
    "test_tasks.json": {"visited": [["ann", "visited", "oslo"], ["cy", "visited", "rome"]]},
    "rel2candidates.json": {"born": ["rome", "oslo"], "visited": ["oslo", "rome"]},
    "e1rel_e2.json": {"annborn": ["rome"], "cyvisited": ["oslo", "rome"]},
}
SIDE = b"ann\tperson\nbob\tperson\noslo\tcity\trest\nlives\trelation\n"
TRUE_PAIRS = b"<urn:fewlink:entity:a%20b> <urn:fewlink:relation:lives> <http://e/oslo> .\n# why\n" + (
    b"<http://e/\\u00e9> <urn:fewlink:relation:lives> <urn:fewlink:entity:%09x> .\n"
)
DECISIONS = b"head\ttail\tdecision\twho\ttime\nann\toslo\taccepted\tx\t2026\nbo\\tb\trome\trejected\ty\t\nc\td\n"
ESCAPED = r"""
\t \n \r \r\n \" ' , ; \\ \0 \x1b[2J \xff\xfe \xef\xbb\xbf # \xed\xa0\x80 \xf4\x90\x80\x80 \xe2\x80\xae
\\ud800 \\u0000 < > &lt; &x; ]]> { } [ ] null NaN -Infinity 1e999 true "" -1 _:b @prefix @base << ^^ @en
urn:fewlink:entity:% %00 %zz <!-- <? <!DOCTYPE\x20a\x20[<!ENTITY\x20x\x20'y'>]> xml:base='::'
rdf:nodeID='1' fewlink /1 /2 \\U0010FFFF \\UFFFFFFFF \x1f\x8b "type":"bundle" \xfd7zXZ\0 PAR1
\x28\xb5\x2f\xfd \xe2\x80\xa8 = + 0x10 1_0 .5 'inf'
"""
TOKENS = [
    *(token.encode().decode("unicode_escape").encode("latin-1") for token in ESCAPED.split()),
    *(b"[" * 2000, b'{"a":' * 500, b"(" * 300, b"9" * 400, b"A" * 140_000, b"\n" * 500, b"<a>" * 300),
]
NUMBERS: list[Any] = [0, -1, 1.5, 10**30, float("nan"), float("inf"), True, False, None]
TEXTS: list[Any] = ["", "x", "\ud800", "\0", "=1", "9" * 50, "2" * 5000]
VALUES: list[Any] = [*NUMBERS, *TEXTS, [], {}, [[]], [None], {"": None}, [1, "a", []], ["a"] * 300]


def changed_bytes(rng: random.Random, content: bytes, others: list[bytes]) -> bytes:
    """A copy with one to four random changes."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((1, 1, 2, 5, 20, 100)))
        change = rng.randrange(9)
        if change == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif change == 1 and at < len(data):
            data[at] = rng.randrange(256)
        elif change == 2:
            del data[at:end]
        elif change == 3:
            data[at:at] = data[at:end] * rng.choice((1, 2, 20))
        elif change == 4:
            data = data[:at]
        elif change in (5, 6):
            data[at : rng.choice((at, end))] = rng.choice(TOKENS)
        elif change == 7:
            other = rng.choice(others)
            begin = rng.randrange(len(other) + 1)
            data[at:at] = other[begin : begin + rng.choice((5, 50, 500))]
        else:
            lines = bytes(data).split(b"\n")
            one = rng.randrange(len(lines))
            two = rng.randrange(len(lines))
            lines[one] = rng.choice((lines[two], b"\t".join(lines[one].split(b"\t")[::-1]), lines[one] + b"\t", b""))
            data = bytearray(b"\n".join(lines))
    return bytes(data)


def changed_value(rng: random.Random, value: Any) -> Any:
    """A JSON value with one node replaced, removed, repeated or wrapped."""
    value = copy.deepcopy(value)
    places: list[tuple[Any, Any]] = []

    def visit(node: Any) -> None:
        for key in list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
            places.append((node, key))
            visit(node[key])

    visit(value)
    if not places:
        return rng.choice(VALUES)
    node, key = rng.choice(places)
    change = rng.randrange(6)
    if change == 0:
        del node[key]
    elif change == 1:
        node[key] = [node[key]]
    elif change == 2 and isinstance(node, dict):
        node[rng.choice(("", "format", str(key) + "x", "\ud800", "sha256"))] = node.pop(key)
    elif change == 3:
        node[key] = copy.deepcopy(rng.choice(places)[0])
    else:
        node[key] = rng.choice(VALUES)
    return value


def changed(rng: random.Random, content: bytes, others: list[bytes]) -> bytes:
    """A changed file: JSON by value or by byte, other files by byte."""
    if content[:1] in (b"{", b"[") and rng.random() < 0.6:
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(content)
            for _ in range(rng.choice((1, 1, 2, 3))):
                value = changed_value(rng, value)
            text = json.dumps(value, ensure_ascii=rng.random() < 0.5)
            return text.encode("utf-8", "surrogatepass" if rng.random() < 0.5 else "replace")
    return changed_bytes(rng, content, others)


@dataclass
class Reader:
    """Reads one kind of file. `read` gets the changed input and a random generator for its options."""

    name: str
    seeds: list[bytes]
    read: Callable[[bytes, random.Random], object]
    share: float = 1.0  # of the inputs, relative to others
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))


class Place:
    """A folder for the files of inputs, in memory where the system has such a folder."""

    def __init__(self, folder: Path | None = None) -> None:
        memory = Path("/dev/shm")
        self.folder = folder or Path(tempfile.mkdtemp(prefix="fewlink-fuzz-", dir=memory if memory.is_dir() else None))

    def file(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        return path

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def triples_reader(place: Place, name: str) -> Callable[[bytes, random.Random], object]:
    """Reads a graph; bad lines stop it or are skipped."""

    def read(content: bytes, rng: random.Random) -> object:
        path = place.file(name, content)
        skip = rng.random() < 0.5
        return compile_graph([path], on_error="skip" if skip else "stop")

    return read


def readers(place: Place) -> list[Reader]:
    """All readers with valid files to begin with."""
    compressed: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
    formats = {
        "tsv": [TSV, TSV.replace(b"\n", b"\r\n"), RESULTS_TSV],
        "csv": [TSV.replace(b"\t", b","), b'"a, b","r ""q""","two\nlines"\na,r,b\n' * 3],
        "txt": [path.read_bytes() for path in sorted(MESSY.glob("[a-z]*"))],
        "jsonl": [path.read_bytes() for path in sorted(MESSY.glob("*.*js*"))],
        "nt": [NT],
        "nq": [NT.replace(b" .\n", b" <http://g> .\n"), NT],
        "ttl": [TURTLE, NT],
        "trig": [TURTLE + b"e:g { e:a e:b e:c } ", TURTLE],
        "rdf": [XML],
        "jsonld": [JSONLD],
        "srj": [SRJ, JSONLD],
        "xml": [SRX, XML],
    }
    found = [Reader(suffix, seeds, triples_reader(place, f"g.{suffix}")) for suffix, seeds in formats.items()]
    for suffix, compress in compressed.items():
        seeds = [compress(TSV), compress(TSV) + compress(NT), compress(TSV * 200)]
        found.append(Reader(f"tsv{suffix}", seeds, triples_reader(place, f"g.tsv{suffix}"), 0.5))
    with contextlib.suppress(ImportError):
        import pyarrow
        import pyarrow.parquet

        found.append(Reader("tsv.zst", [_zstd(TSV), _zstd(TSV * 50)], triples_reader(place, "g.tsv.zst"), 0.5))
        table = pyarrow.table({"head": ["a", "b"], "relation": ["r", "r"], "tail": ["b", "c"]})
        sink = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(table, sink)
        found.append(Reader("parquet", [sink.getvalue().to_pybytes()], triples_reader(place, "g.parquet"), 0.5))
    found += [
        Reader("stix", [STIX], lambda content, rng: _stix(place, content, rng)),
        Reader("side file", [SIDE], lambda content, rng: _side(place, content)),
        Reader("references", [b"ann\toslo\nbob\trome\n"], lambda content, rng: _references(place, content)),
        Reader("decisions csv", [DECISIONS], lambda content, rng: _decisions(place, content, "csv", rng)),
        Reader(
            "decisions csv",
            [DECISIONS.replace(b"\t", b",")],
            lambda content, rng: _decisions(place, content, "csv", rng),
        ),
        Reader("decisions nt", [TRUE_PAIRS], lambda content, rng: _decisions(place, content, "nt", rng)),
        Reader(
            "decisions json", [json.dumps(LOG).encode()], lambda content, rng: _decisions(place, content, "json", rng)
        ),
        Reader("nell layout", _layout_files(), functools.partial(_layout, place), 0.6),
        Reader("nell archive", _archives(), lambda content, rng: read_layout(place.file("a.tar", content)), 0.4),
        Reader("json", [json.dumps(LAYOUT).encode()], lambda content, rng: read_json(place.file("a.json", content))),
        *_stored_readers(place),
    ]
    return found


def _zstd(content: bytes) -> bytes:
    import pyarrow

    return bytes(pyarrow.Codec("zstd").compress(content).to_pybytes())


def _stix(place: Place, content: bytes, rng: random.Random) -> object:
    path = place.file("bundle.json", content)
    return triples_reader(place, "bundle.json")(content, rng) if rng.random() < 0.5 else read_bundle(path)


@functools.cache
def _small_graph() -> Graph:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "g.tsv"
        path.write_bytes(TSV)
        return compile_graph([path])


def _side(place: Place, content: bytes) -> object:
    path = place.file("side.tsv", content)
    return compile_graph(place.file("g.tsv", TSV), types=path, names=path)


def _references(place: Place, content: bytes) -> object:
    from fewlink.linker.names import read_names, read_pairs

    path = place.file("references.tsv", content)
    return read_names(path), read_pairs(path)


def _decisions(place: Place, content: bytes, format: str, rng: random.Random) -> object:
    path = place.file(f"decisions.{format}", content)
    if rng.random() < 0.9:
        with contextlib.suppress(UnicodeDecodeError):
            return imports.READERS[format](path, content.decode("utf-8-sig"), "me")
    with tempfile.TemporaryDirectory(dir=place.folder) as folder, ProjectFile(Path(folder) / "p") as file:
        imports.add_decisions(file, "p", imports.read_decisions(path))
        return [exports.export(file, "p", each) for each in ("csv", "nt", "json")]


def _layout_files() -> list[bytes]:
    return [TSV.split(b"\n", 1)[1], SIDE, *(json.dumps(content).encode() for content in LAYOUT.values())]


def _layout(place: Place, content: bytes, rng: random.Random) -> object:
    """A folder of the layout in which one file is changed."""
    names = ["path_graph", "entity2text.txt", *LAYOUT]
    folder = place.folder / "layout"
    if not folder.exists():
        folder.mkdir()
        for name, whole in zip(names, _layout_files(), strict=True):
            (folder / name).write_bytes(whole)
    which = names[(0 if content[:1] not in (b"{", b"[") else rng.randrange(2, len(names)))]
    whole = (folder / which).read_bytes()
    try:
        (folder / which).write_bytes(content)
        return read_layout(folder)
    finally:
        (folder / which).write_bytes(whole)


def _archives() -> list[bytes]:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in zip(["path_graph", "entity2text.txt", *LAYOUT], _layout_files(), strict=True):
            member = tarfile.TarInfo(f"a/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return [archive.getvalue(), gzip.compress(archive.getvalue()), lzma.compress(archive.getvalue())]


def sealed(content: bytes, rng: random.Random) -> bytes:
    """A JSON object, in half of all cases with the right checksum of its own: made up, not damaged."""
    if rng.random() < 0.5:
        with contextlib.suppress(ValueError, RecursionError, UnicodeDecodeError):
            value = json.loads(content)
            if isinstance(value, dict):
                value.pop("sha256", None)
                return json.dumps({**value, "sha256": sha256_json(value)}).encode("utf-8", "surrogatepass")
    return content


def _stored_readers(place: Place) -> Iterator[Reader]:
    """Folders, records, configurations, calibrations, and recipes, as fewlink writes them."""
    from importlib.resources import files

    from fewlink.core.recipes import recipe, recipe_texts
    from fewlink.evaluation import Protocol, evaluate
    from fewlink.evaluation.records import make_record
    from fewlink.linker.probability import open_calibration
    from fewlink.models import training_recipe
    from fewlink.models.baselines import RandomScorer
    from fewlink.models.embeddings import EmbeddingSettings
    from fewlink.models.trail.shipped import read_weights
    from fewlink.tasks.benchmark import Benchmark
    from fewlink.tasks.carving import CarveSettings, carve
    from fewlink.tasks.catalogue import open_umls
    from fewlink.training import RunConfig

    builtin = files("fewlink") / "builtin"
    calibration = (builtin / "trail.calibration.json").read_bytes()
    yield Reader(
        "calibration",
        [calibration],
        lambda content, rng: open_calibration(place.file("calibration.json", sealed(content, rng))),
    )
    weights = (builtin / "trail.safetensors").read_bytes()
    yield Reader("weights", [weights], lambda content, rng: read_weights(content, "weights"), 0.2)
    recipes = [text.encode() for text in recipe_texts().values()]

    def read_recipe(content: bytes, rng: random.Random) -> object:
        path = str(place.file("recipe.toml", content))
        return recipe(path, EmbeddingSettings) if rng.random() < 0.5 else training_recipe(None, path)

    yield Reader("recipe", recipes, read_recipe, 0.5)

    graph = _small_graph()
    folder = place.folder / "graph"
    graph.save(folder)
    manifest = (folder / MANIFEST).read_bytes()

    def read_manifest(content: bytes, rng: random.Random) -> object:
        content = sealed(content, rng)
        (folder / MANIFEST).write_bytes(content)
        return open_folder(folder, value_format), Graph.open(folder)

    value_format = json.loads(manifest)["format"]
    yield Reader("manifest", [manifest], read_manifest)
    arrays = sorted(path for path in folder.iterdir() if path.suffix == ".npy")

    def read_folder(content: bytes, rng: random.Random) -> object:
        """A folder with the right manifest, in which one array is changed."""
        path = rng.choice(arrays)
        whole = path.read_bytes()
        (folder / MANIFEST).write_bytes(manifest)
        try:
            path.write_bytes(content)
            return Graph.open(folder)
        finally:
            path.write_bytes(whole)

    whole_benchmark = place.folder / "benchmark"
    open_umls().save(whole_benchmark)
    members = sorted(path for path in whole_benchmark.rglob("*") if path.is_file())
    members = [path for path in members if path.stat().st_size < 100_000]

    def read_benchmark(content: bytes, rng: random.Random) -> object:
        """A benchmark in which one file is changed; `content` is that of another."""
        path = rng.choice(members)
        whole = path.read_bytes()
        try:
            path.write_bytes(rng.choice((content, changed_bytes(rng, whole, [whole]))))
            return Benchmark.open(whole_benchmark)
        finally:
            path.write_bytes(whole)

    yield Reader("benchmark folder", [path.read_bytes() for path in members], read_benchmark, 0.5)
    yield Reader("graph folder", [path.read_bytes() for path in arrays], read_folder)

    rows = [f"a{i % 20}\tr{i % 4}\tb{i % 9}\n" for i in range(40)] + [f"a{i}\tmany\tb{i % 9}\n" for i in range(60)]
    graph_file = place.file("many.tsv", "".join(rows).encode())
    benchmark, _ = carve(compile_graph([graph_file]), "bench", CarveSettings(smallest=5, largest=40))
    evaluation = evaluate(benchmark, RandomScorer(benchmark.graph), Protocol("dev", 1, "full"))
    record = make_record(evaluation, benchmark="bench", data_sha256=benchmark.fingerprint, model="random", config={})
    store = place.folder / "store"
    record_file = RecordStore(store).add(record)
    line = record_file.read_bytes()

    def read_record(content: bytes, rng: random.Random) -> object:
        record_file.write_bytes(sealed(content, rng))
        return [record.metrics for record in read_records(store)]

    yield Reader("records", [line, line + line.replace(b"random", b"rules")], read_record)
    benchmark_facts = {"name": "b", "fingerprint": "x", "source": "b", "train": ["r"]}
    config = {
        **{"version": "0.1", "benchmark": benchmark_facts, "parts": {}},
        "graph": {"fingerprint": "x", "entities": 3, "relations": 2},
        "embeddings": {"model": "complex", "dim": 10, "sha256": "x"},
        "settings": training_recipe("fsrl", None).settings.as_dict(),
    }
    from fewlink.models.folder import CONFIG
    from fewlink.models.run import FORMAT

    config["format"] = FORMAT
    run = place.folder / "run"
    run.mkdir()

    def read_config(content: bytes, rng: random.Random) -> object:
        (run / CONFIG).write_bytes(sealed(content, rng))
        return RunConfig.read(run).as_dict()

    yield Reader("run config", [json.dumps(config).encode()], read_config)


GUIDED_MINUTES = 10.0
GUIDED = {  # the file that each reader of graphs reads
    **{name: f"g.{name}" for name in ("tsv", "csv", "jsonl", "nt", "nq", "ttl", "trig", "rdf", "jsonld", "srj", "xml")},
    **{name: f"g.{name}" for name in ("parquet", "tsv.gz", "tsv.xz", "tsv.bz2", "tsv.zst")},
    "stix": "bundle.json",
}


class GivenUp(BaseException):
    """An input took too long."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise GivenUp

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def try_input(reader: Reader, seed: int, number: int) -> tuple[bytes, str | None]:
    """One input and what went wrong with it, or None; counts it."""
    rng = random.Random(f"{seed}/{reader.name}/{number}")
    content = changed(rng, rng.choice(reader.seeds), reader.seeds)
    reader.counts["inputs"] += 1
    begin = time.process_time()
    problem = None
    outcome = "accepted"
    try:
        with time_limit(LIMIT):
            reader.read(content, rng)
    except FewlinkError as error:
        outcome = "refused"
        if not str(error).strip():
            problem = "an error without a message"
    except GivenUp:
        problem = f"took over {LIMIT:g} s"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        problem = f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
    if problem is None and (seconds := time.process_time() - begin) > SLOW:
        problem = f"took {seconds:.1f} s"
    reader.counts["failures" if problem else outcome] += 1
    return content, problem


def fuzz(
    inputs: int, seed: int = 0, only: str | None = None, out: Path | None = None, seconds: float = 1e9
) -> tuple[list[Reader], list[str]]:
    """Try so many inputs, round by round over all readers; gives the readers with their counts, and all problems."""
    place = Place()
    problems = list[str]()
    end = time.monotonic() + seconds
    try:
        chosen = [reader for reader in readers(place) if only in (None, reader.name)]
        with contextlib.redirect_stderr(io.StringIO()):
            number = total = 0
            while total < inputs and time.monotonic() < end and chosen:
                for reader in chosen:
                    if reader.share < 1 and (number * reader.share) % 1 >= reader.share:
                        continue
                    content, problem = try_input(reader, seed, number)
                    total += 1
                    if problem is not None:
                        problems.append(f"{reader.name} {number}: {problem}")
                        if out is not None:
                            out.mkdir(parents=True, exist_ok=True)
                            (out / f"{reader.name}-{seed}-{number}".replace(" ", "-")).write_bytes(content)
                number += 1
    finally:
        place.close()
    return chosen, problems


def guide(reader_name: str, seconds: int, out: Path, folder: Path) -> None:
    """Let atheris choose inputs of one reader; ends the process."""
    import atheris  # type: ignore[import-untyped]

    with atheris.instrument_imports(include=["fewlink.graph"]):
        for name in [name for name in sys.modules if name.startswith("fewlink")]:
            del sys.modules[name]  # so that they are imported again
        from fewlink.core import errors
        from fewlink.graph import columns, formats, plain, rdf, sparql, stix, tables  # noqa: F401
    place = Place(folder)
    corpus = CORPUS / reader_name
    corpus.mkdir(parents=True, exist_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    seeds = place.folder / "seeds"
    seeds.mkdir()
    for number, seed in enumerate(next(each.seeds for each in readers(place) if each.name == reader_name)):
        (seeds / str(number)).write_bytes(seed)

    def try_bytes(content: bytes) -> None:
        path = place.file(GUIDED[reader_name], content)
        for skip in (False, True):
            with contextlib.suppress(errors.FewlinkError):
                compile_graph(path, on_error="skip" if skip else "stop")

    limits = [f"-timeout={SLOW:.0f}", f"-rss_limit_mb={MAX_MEGABYTES}", f"-max_total_time={seconds}", "-max_len=4096"]
    found = f"-artifact_prefix={out}/{reader_name}-"
    atheris.Setup([sys.argv[0], *limits, found, "-verbosity=0", str(corpus), str(seeds)], try_bytes)
    atheris.Fuzz()


def guided(only: str | None, minutes: float, out: Path) -> list[str]:
    """Run atheris on every reader of graphs in turn; gives the readers with failures."""
    chosen = [name for name in GUIDED if only in (None, name)]
    failed = []
    for name in chosen:
        seconds = max(1, round(60 * minutes / len(chosen)))
        place = Place()
        command = [sys.executable, __file__, "--guided", "--reader", name, "--out", out, "--seconds", seconds]
        code = subprocess.run([*map(str, command), "--place", str(place.folder)], check=False).returncode
        place.close()
        print(f"{name}: {'failed' if code else 'no failure'} in {seconds} s", flush=True)
        failed += [name] if code else []
    return failed


def main() -> None:
    from measure import print_table, write_record

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=500_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reader")
    parser.add_argument("--out", type=Path, default=Path("runs/fuzz"))
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--record", action="store_true", help="store the counts in benchmarks/records/fuzz.json")
    parser.add_argument("--guided", action="store_true", help="let atheris choose the inputs, by the lines they reach")
    parser.add_argument("--seconds", type=int, help=argparse.SUPPRESS)  # of one reader, in its own process
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.guided and given.seconds:
        guide(given.reader, given.seconds, given.out, given.place)
    if given.guided:
        sys.exit(1 if guided(given.reader, min(given.minutes, GUIDED_MINUTES), given.out) else 0)
    begin = time.monotonic()
    chosen, problems = fuzz(given.inputs, given.seed, given.reader, given.out, 60 * given.minutes)
    rows = [{"reader": reader.name, **reader.counts} for reader in chosen]
    totals = {key: sum(reader.counts[key] for reader in chosen) for key in OUTCOMES}
    minutes = (time.monotonic() - begin) / 60
    print_table([*rows, {"reader": "all", **totals}])
    print(f"{totals['inputs']:,} inputs in {minutes:.1f} min, seed {given.seed}: {len(problems)} failures")
    for problem in problems[:SHOWN]:
        print(f"- {problem}"[:500])
    if given.record:
        write_record("fuzz", {"seed": given.seed, "minutes": round(minutes, 1), "total": totals, "readers": rows})
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
