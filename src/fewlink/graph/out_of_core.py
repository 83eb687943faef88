"""Compile files of triples into the folder of a graph out of core, with DuckDB: memory is bounded at any size.

The readers pass names on in the order in which they appear, and DuckDB groups, joins and sorts them and the edges. Each
stage writes files into a work folder beside the result, once; the same command continues after the last finished one.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from fewlink.core.errors import FewlinkError, MissingExtra, writing
from fewlink.core.files import beside, locked, new_folder, read_json, real, sha256_json, sync, write_json
from fewlink.core.progress import duration, progress, tell
from fewlink.graph.compile import compile_graph, in_order
from fewlink.graph.compression import reading_source
from fewlink.graph.formats import format_of, read_triples
from fewlink.graph.graph import EDGE_ARRAYS, FORMAT, LARGE, Graph
from fewlink.graph.labels import readable_name
from fewlink.graph.literals import MIN_SHARE, MIN_TRIPLES, is_literal
from fewlink.graph.name_index import ArrayWriter, Keys
from fewlink.graph.side_files import check_side_files, read_pairs_table
from fewlink.graph.source import CompileReport, FileFacts, GraphSource
from fewlink.graph.types import RDF_TYPE, TypeTable, class_names, types_from_names
from fewlink.graph.vocabulary import Interner, Vocabulary, load_array

BATCH = 1 << 20  # rows that are passed on together
PYTHON_BYTES = 1 << 30  # that everything but DuckDB takes
LEAST_BYTES = 1 << 29  # that DuckDB gets
MAX_TRIPLES = 2**31 - 1  # positions are 32-bit integers
REST = 2.0  # time that everything else takes, in times of reading
LABELS_AT_ONCE = 1 << 18
PROGRESS_SECONDS = 1.0
PROGRESS = {"enable_progress_bar": True, "enable_progress_bar_print": False, "progress_bar_time": 0}
NOTHING: dict[str, Any] = {
    "report": {},
    "rdf": False,
    "rows": 0,
    "labels": 0,
    "blocks": [],
    "relations": [],
    "ends": {},
}
DEFAULT_BYTES = 4 << 30
BYTES_OF_TEXT = 8  # that a byte of text takes if it is read at once
UNPACKED = {".gz": 8, ".zst": 8, ".bz2": 12, ".xz": 12, ".parquet": 6, ".pq": 6}  # bytes of text in a byte of a file


def compile_to_folder(
    source: GraphSource, out: Path, *, memory: int = DEFAULT_BYTES, report: CompileReport | None = None
) -> Graph:
    """Compile files of triples into the folder of a graph, and open it.

    If reading them at once would take more than `memory` bytes, it is done out of core. The folder is the same.
    """
    report = report or CompileReport()
    paths = source.paths
    in_memory = sum(map(estimated_bytes, paths)) <= memory or any(format_of(path).name == "STIX" for path in paths)
    if in_memory:
        compile_graph(source, report=report).save(out)
    else:
        compile_out_of_core(source, out, memory=memory, report=report)
    return Graph.open(out)


def estimated_bytes(path: Path) -> float:
    """About how many bytes a file of triples takes if it is read at once."""
    with reading_source(path):
        unpacked = next((ratio for suffix, ratio in UNPACKED.items() if path.name.lower().endswith(suffix)), 1)
        return float(path.stat().st_size * unpacked * BYTES_OF_TEXT)


def compile_out_of_core(source: GraphSource, out: Path, *, memory: int, report: CompileReport) -> None:
    """Read files as `compile_graph` does, and write the folder that `Graph.save` would write, in so many bytes."""
    try:
        import duckdb
        import pyarrow  # noqa: F401
    except ImportError:
        raise MissingExtra("compiling a graph that is larger than the memory", "scale") from None
    out = real(out)
    with writing(out), locked(out), ExitStack() as kept:
        work = Work(beside(out, "work"), _key(source))
        engine = kept.enter_context(duckdb.connect())
        engine.execute(f"SET memory_limit = '{max(memory - PYTHON_BYTES, LEAST_BYTES) >> 20}MiB'")
        engine.execute("SET temp_directory = ?", [str(work.folder / "spill")])
        for name, value in (("preserve_insertion_order", False), *PROGRESS.items()):
            engine.execute(f"SET {name} = {value}")
        compiler = Compiler(work, engine, source, max(memory // 2, LEAST_BYTES))
        try:
            compiler.run(report)
        except FewlinkError:  # the files must be changed
            work.remove()
            raise
        except duckdb.Error as error:  # there is too little memory, or disk
            reason = str(error).strip().split("\n")[0]
            remedy = "free some disk, or give more --memory; the same command continues"
            raise FewlinkError(f"{out} could not be compiled ({reason}): {remedy}") from None
        graph = work.graph()
        with new_folder(out, FORMAT, graph.facts) as draft:
            for file in sorted(work.result.iterdir()):
                _link(file, draft / file.name)
        work.remove()


def _key(source: GraphSource) -> str:
    """What the result depends on."""
    files = [path for path in (*source.paths, source.types, source.names) if path is not None]
    facts = [(str(real(file)), (seen := file.stat()).st_size, seen.st_mtime_ns) for file in files]
    return sha256_json([facts, repr(source), LARGE, FORMAT])


def _link(file: Path, to: Path) -> None:
    try:
        os.link(file, to)
    except OSError:  # a file system without links
        shutil.copyfile(file, to)


class Work:
    """The work folder of one command: files of finished stages, and the `result`."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder = folder
        self.result = folder / "result"
        if folder.exists() and not ((folder / "key.json").exists() and read_json(folder / "key.json") == key):
            self.remove()
        elif folder.exists():
            tell(f"continuing the work in {folder}")
        self.result.mkdir(parents=True, exist_ok=True)
        write_json(folder / "key.json", key)

    def once(self, stage: str, run: Callable[[], Any]) -> Any:
        """What `run` returns, JSON content, or returned when this stage was finished."""
        done = self.folder / f"{stage}.json"
        if not done.exists():
            found = run()
            for file in (*self.folder.glob("*.*"), *self.result.iterdir()):
                sync(file)
            write_json(done, found)
        return read_json(done)

    def graph(self) -> Graph:
        """The graph in the result, without what is counted of it."""
        entities, relations = (Vocabulary.open(self.result, each) for each in ("entities", "relations"))
        labels = Vocabulary.open(self.result, "labels") if (self.result / "labels.text.npy").exists() else None
        edges: dict[str, Any] = {array: load_array(self.result / f"{array}.npy") for array in EDGE_ARRAYS}
        return Graph(entities, relations, **edges, labels=labels)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class Compiler:
    """The stages of one command. `engine` is a connection of DuckDB."""

    def __init__(
        self,
        work: Work,
        engine: Any,
        source: GraphSource,
        memory: int = LEAST_BYTES,  # for arrays, beside what the engine takes
    ) -> None:
        self.work = work
        self.folder = work.folder
        self.result = work.result
        self.engine = engine
        self.source = source
        self.paths = source.paths
        self.types = source.types
        self.names = source.names
        self.memory = memory

    def run(self, report: CompileReport) -> None:
        """Run all stages that are not finished, and fill the report."""
        begin = time.monotonic()
        read = dict(NOTHING)
        for number in range(len(self.paths)):
            read = self.work.once(f"read-{number}", functools.partial(self.read, number, read))
        seconds = time.monotonic() - begin
        if seconds > 60:
            tell(f"read in {duration(seconds)}; the rest takes about {duration(REST * seconds)}")
        found = CompileReport(**{**read["report"], "files": [FileFacts(**each) for each in read["report"]["files"]]})
        found.labels = {} if read["rdf"] else None
        if found.triples > MAX_TRIPLES:
            raise FewlinkError(f"the files have over {MAX_TRIPLES:,} triples: give fewer")
        relations = [name.encode() for name in read["relations"]]
        self.work.once("names", self.number_names)
        self.work.once("map", self.map_names)
        self.work.once("triples", lambda: self.write_triples(read["blocks"]))
        left = self.work.once("literals", lambda: self.leave_out_literals(relations, read["ends"]))
        relations = [relations[number] for number in left["relations"]]
        found.literals += left["count"]
        found.triples -= left["count"]
        found.literal_relations += left["names"]
        if not found.triples:
            raise found.no_triples(self.paths)
        edges = self.work.once("edges", lambda: self.sort_edges(len(relations)))
        found.duplicates += edges["duplicates"]
        found.self_loops += edges["self_loops"]
        self.work.once("entities", lambda: self.write_names(relations))
        self.work.once("labels", lambda: self.write_labels(relations, rdf=read["rdf"]))
        self.work.once("types", lambda: self.write_types(relations))
        if found.triples - found.duplicates > LARGE:
            self.work.once("counted", lambda: self.work.graph().write_counted(self.result, memory=self.memory))
            if (self.result / "types.offsets.npy").exists():
                self.work.once("groups", self.write_groups)
            self.work.once("index", lambda: self.work.graph().write_indexes(self.result, self.sorted_words))
        for each in dataclasses.fields(report):
            setattr(report, each.name, getattr(found, each.name))

    def read(self, number: int, before: dict[str, Any]) -> dict[str, Any]:
        """Write the names of each block of a file, in order of appearance, and its triples with places among them."""
        import pyarrow
        from pyarrow.parquet import ParquetWriter

        stored = before["report"]
        report = CompileReport(**{**stored, "files": [FileFacts(**each) for each in stored.get("files", ())]})
        report.labels = {} if before["rdf"] else None
        relations = Interner((name.encode(), place) for place, name in enumerate(before["relations"]))
        ends = {int(relation): names for relation, names in before["ends"].items()}
        row = before["rows"]
        blocks = [*before["blocks"]]
        path = self.paths[number]
        labels = Labels(before["labels"])
        schema = pyarrow.schema([("row", pyarrow.int64()), ("name", pyarrow.binary())])
        with (
            ParquetWriter(self.folder / f"names-{number}.parquet", schema, compression="lz4") as names,
            ParquetWriter(self.folder / f"labels-{number}.parquet", Labels.schema(), compression="lz4") as texts,
            (self.folder / f"codes-{number}.bin").open("wb") as codes,
            progress(f"reading {path.name}", 1.0) as advance,
        ):
            for block in read_triples(path, reading=self.source, report=report, advance=advance):
                present = in_order(block, 0, 2)
                places = np.zeros(len(block.names), np.int32)
                places[present] = np.arange(len(present))
                numbers = np.zeros(len(block.names), np.int32)
                of_relations = in_order(block, 1)
                numbers[of_relations] = relations.ids([block.names[code] for code in of_relations.tolist()])
                own = np.stack([places[block.codes[:, 0]], numbers[block.codes[:, 1]], places[block.codes[:, 2]]], 1)
                codes.write(own.data)
                column = pyarrow.array([block.names[code] for code in present.tolist()], pyarrow.binary())
                rows = pyarrow.array(np.arange(row, row + len(present)))
                names.write_table(pyarrow.table([rows, column], schema))
                row += len(present)
                blocks.append([number, len(own), len(present)])
                if not self.source.keep_literals:
                    _note_ends(ends, own[:, 1], block.names, block.codes)
                labels.take(report, texts)
            labels.take(report, texts, all=True)
        report.descriptions.clear()
        facts = {**dataclasses.asdict(dataclasses.replace(report, labels=None))}
        known = [name.decode() for name in relations]
        rdf = report.labels is not None
        counts = {"rdf": rdf, "rows": row, "labels": labels.count}
        return {"report": facts, **counts, "blocks": blocks, "relations": known, "ends": ends}

    def number_names(self) -> None:
        """Write the distinct names in order of appearance: their places are the ids of entities."""
        self._write_ids("SELECT name FROM (SELECT name, min(row) AS first FROM {} GROUP BY name) ORDER BY first")

    def _write_ids(self, query: str) -> None:
        import pyarrow
        from pyarrow.parquet import ParquetWriter

        schema = pyarrow.schema([("id", pyarrow.int32()), ("name", pyarrow.binary())])
        count = 0
        source = self._names_files()
        draft = self.folder / "ids.draft"
        with ParquetWriter(draft, schema, compression="lz4") as writer:
            for batch in self._stream(query.format(source), "numbering names"):
                ids = pyarrow.array(np.arange(count, count + batch.num_rows, dtype=np.int32))
                writer.write_table(pyarrow.table([ids, batch.column(0)], schema))
                count += batch.num_rows
        os.replace(draft, self.folder / "ids.parquet")

    def _names_files(self) -> str:
        return f"read_parquet({_text(sorted(map(str, self.folder.glob('names-*.parquet'))))})"

    @property
    def _ids(self) -> str:
        return f"read_parquet({_text(str(self.folder / 'ids.parquet'))})"

    @property
    def _triples(self) -> str:
        return f"read_parquet({_text(str(self.folder / 'triples.parquet'))}, file_row_number = true)"

    def map_names(self) -> None:
        """Write the id of each name of each block."""
        query = f"SELECT id FROM {self._names_files()} JOIN {self._ids} USING (name) ORDER BY row"
        with (self.folder / "map.bin").open("wb") as file:
            for batch in self._stream(query, "looking up names"):
                file.write(_numbers(batch.column(0)).data)

    def write_triples(self, blocks: list[list[int]]) -> None:
        """Write triples of ids, in file order."""
        import pyarrow
        from pyarrow.parquet import ParquetWriter

        for file in self.folder.glob("names-*.parquet"):
            file.unlink()
        ids = np.memmap(self.folder / "map.bin", np.int32, "r") if (self.folder / "map.bin").stat().st_size else None
        schema = pyarrow.schema([(name, pyarrow.int32()) for name in "hrt"])
        first = 0
        files = dict[int, Any]()
        done = 0
        total = sum(size for _, size, _ in blocks)
        with (
            ExitStack() as kept,
            ParquetWriter(self.folder / "triples.parquet", schema, compression="lz4", use_dictionary=False) as writer,
            progress("writing triples", total) as advance,
        ):
            for number, size, names in blocks:
                if number not in files:
                    files[number] = kept.enter_context((self.folder / f"codes-{number}.bin").open("rb"))
                codes = np.frombuffer(files[number].read(12 * size), np.int32).reshape(-1, 3)
                own = np.zeros(0, np.int32) if ids is None else np.array(ids[first : first + names])
                columns = [own[codes[:, 0]], np.ascontiguousarray(codes[:, 1]), own[codes[:, 2]]]
                writer.write_table(pyarrow.table([pyarrow.array(column) for column in columns], schema))
                first += names
                done += size
                advance(done)

    def leave_out_literals(self, relations: list[bytes], ends: dict[str, list[str]]) -> dict[str, Any]:
        """Leave out the triples that `literal_triples` finds, and new names that occur in no other."""
        for file in (*self.folder.glob("codes-*.bin"), self.folder / "map.bin"):
            file.unlink(missing_ok=True)
        every: dict[str, Any] = {"relations": list(range(len(relations))), "count": 0, "names": []}
        suspects = [
            int(relation)
            for relation, (head, first, last) in ends.items()
            if (is_literal(first) or is_literal(last)) and not is_literal(head)
        ]
        if self.source.keep_literals or not suspects:
            return every
        self.engine.execute("CREATE OR REPLACE TABLE literals (r INTEGER, t INTEGER)")
        for relation in suspects:
            self._find_literals(relation)
        (count,) = self._one("SELECT count(*) FROM literals")
        if not count:
            return every
        (dropped,) = self._one(f"SELECT count(*) FROM {self._triples} SEMI JOIN literals USING (r, t)")
        kept = f"SELECT h, r, t, file_row_number AS p FROM {self._triples} ANTI JOIN literals USING (r, t)"
        gone = self._rows("SELECT DISTINCT r FROM literals ORDER BY r")
        self.engine.execute(f"CREATE OR REPLACE TABLE kept AS {kept}")
        used = self._rows("SELECT DISTINCT r FROM kept ORDER BY r")
        self.engine.execute(
            "CREATE OR REPLACE TABLE used AS SELECT id, (row_number() OVER (ORDER BY id) - 1)::INTEGER AS new "
            "FROM (SELECT h AS id FROM kept UNION SELECT t FROM kept)"
        )
        new_relations = ", ".join(f"({number}, {place})" for place, (number,) in enumerate(used))
        renumbered = (
            "SELECT a.new AS h, v.new AS r, b.new AS t FROM kept JOIN used a ON a.id = h JOIN used b ON b.id = t "
            f"JOIN (VALUES {new_relations or '(-1, -1)'}) v(old, new) ON v.old = r ORDER BY p"
        )
        for name, query in (
            ("triples", renumbered),
            ("ids", f"SELECT new AS id, name FROM {self._ids} JOIN used USING (id) ORDER BY new"),
        ):
            draft = self.folder / f"{name}.draft"
            self.engine.execute("SET preserve_insertion_order = true")
            self.engine.execute(f"COPY ({query}) TO {_text(str(draft))} (FORMAT parquet)")
            self.engine.execute("SET preserve_insertion_order = false")
        for name in ("triples", "ids"):
            os.replace(self.folder / f"{name}.draft", self.folder / f"{name}.parquet")
        names = [relations[number].decode() for (number,) in gone]
        return {"relations": [number for (number,) in used], "count": dropped, "names": names}

    def _find_literals(self, relation: int) -> None:
        """Add the literals among the tails of a relation to the table, if it is one of literals."""
        import pyarrow

        tails = f"SELECT t AS id, count(*) AS n FROM {self._triples} WHERE r = {relation} GROUP BY t"
        heads = f"SELECT DISTINCT h AS id FROM {self._triples} WHERE r = {relation}"
        rows = 0
        literal_rows = 0
        found = [np.zeros(0, np.int32)]
        for batch in self._stream(f"SELECT id, n, name FROM ({tails}) JOIN {self._ids} USING (id)"):
            literal = np.array([is_literal(name) for name in batch.column(2).to_pylist()], bool)
            sizes = _numbers(batch.column(1))
            rows = rows + int(sizes.sum())
            literal_rows = literal_rows + int(sizes[literal].sum())
            found.append(_numbers(batch.column(0))[literal])
        self.engine.register("found", pyarrow.table({"t": pyarrow.array(np.concatenate(found))}))
        if rows < MIN_TRIPLES or literal_rows / rows < MIN_SHARE:
            return
        if self._one(f"SELECT count(*) FROM found WHERE t IN (SELECT h FROM {self._triples})")[0]:
            return
        for batch in self._stream(f"SELECT name FROM ({heads}) JOIN {self._ids} USING (id)"):
            if any(map(is_literal, batch.column(0).to_pylist())):
                return
        self.engine.execute(f"INSERT INTO literals SELECT {relation}, t FROM found")

    def sort_edges(self, relations: int) -> dict[str, int]:
        """Write the arrays of edges, each triple once, and count what was left out."""
        (entities,) = self._one(f"SELECT count(*) FROM {self._ids}")
        (triples,) = self._one(f"SELECT count(*) FROM {self._triples}")
        query = (
            f"SELECT * FROM (SELECT h, r, t, file_row_number::INTEGER AS p FROM {self._triples} UNION ALL "
            f"SELECT t, r + {relations}, h, file_row_number::INTEGER FROM {self._triples}) ORDER BY 1, 2, 3, 4"
        )
        degrees = np.zeros(entities + 1, np.int64)
        repeated = [np.zeros(0, np.int32)]
        self_loops = 0
        last = np.full(3, -1)
        with (
            ArrayWriter(self.result / "relation_ids.npy", np.int32) as relation_ids,
            ArrayWriter(self.result / "tail_ids.npy", np.int32) as tail_ids,
            ArrayWriter(self.result / "positions.npy", np.int32) as positions,
        ):
            for batch in self._stream(query, "sorting edges"):
                heads, middles, tails, places = (_numbers(column) for column in batch.columns)
                again = np.zeros(len(heads), bool)
                again[1:] = (np.diff(heads) == 0) & (np.diff(middles) == 0) & (np.diff(tails) == 0)
                again[0] = (last == [heads[0], middles[0], tails[0]]).all()
                last = np.array([heads[-1], middles[-1], tails[-1]])
                if again.any():
                    repeated.append(places[again & (middles < relations)])
                    heads, middles, tails, places = (each[~again] for each in (heads, middles, tails, places))
                if len(heads):
                    here = np.bincount(heads - heads[0])
                    degrees[heads[0] + 1 : heads[0] + 1 + len(here)] += here
                    self_loops += int(((heads == tails) & (middles < relations)).sum())
                relation_ids.write(middles)
                tail_ids.write(tails)
                positions.write(places)
        np.save(self.result / "offsets.npy", np.cumsum(degrees), allow_pickle=False)
        left_out = np.concatenate(repeated)
        if len(left_out):
            self._renumber_positions(left_out, triples)
        (self.folder / "triples.parquet").unlink()
        return {"duplicates": len(left_out), "self_loops": self_loops}

    def _renumber_positions(self, left_out: np.ndarray, triples: int) -> None:
        """Count positions without the triples that were left out."""
        before = np.lib.format.open_memmap(self.folder / "before.npy", "w+", np.int32, (triples,))
        before[left_out] = 1
        np.cumsum(before, out=before)
        positions = np.load(self.result / "positions.npy", mmap_mode="r+")
        for at in range(0, len(positions), BATCH):
            some = positions[at : at + BATCH]
            some -= before[some]
        positions.flush()
        del before
        (self.folder / "before.npy").unlink()

    def write_names(self, relations: list[bytes]) -> None:
        """Write the vocabularies."""
        Vocabulary.of(relations).save(self.result, "relations")
        with progress("writing names", None) as advance:
            batches = self._stream(f"SELECT name FROM {self._ids} ORDER BY id")
            _write_vocabulary(self.result, "entities", (batch.column(0) for batch in batches), advance)

    def write_labels(self, relations: list[bytes], rdf: bool) -> None:
        """Write readable names, if there is a file of them or RDF was read."""
        import pyarrow

        entity_names, relation_names = (Vocabulary.open(self.result, each) for each in ("entities", "relations"))
        check_side_files(entity_names, relation_names, self.source)
        if self.names is None and not rdf:
            return
        files = [str(path) for path in self.folder.glob("labels-*.parquet")]
        best = (
            f"SELECT name, arg_min(text, rank * {1 << 40} + seq) AS text FROM read_parquet({_text(files)}) GROUP BY 1"
        )
        self.engine.execute(f"CREATE OR REPLACE TABLE stated AS {best}")
        self.engine.execute("CREATE OR REPLACE TABLE given (name BLOB, text BLOB)")
        if self.names is not None:
            self._insert_pairs("rows", ((row[0], row[1]) for row in read_pairs_table(self.names)), self.names.name)
            self.engine.execute("INSERT INTO given SELECT a, arg_max(b, seq) FROM rows GROUP BY a")
        listed = pyarrow.table({"id": np.arange(len(relations)), "name": pyarrow.array(relations, pyarrow.binary())})
        self.engine.register("listed", listed)
        columns = "id, name, given.text, stated.text"
        joins = "LEFT JOIN given USING (name) LEFT JOIN stated USING (name) ORDER BY id"

        def labels() -> Iterator[Any]:
            for source in (self._ids, "listed"):
                for batch in self._stream(f"SELECT {columns} FROM {source} {joins}"):
                    _, names, texts, rdf_texts = batch.columns
                    if not rdf:
                        yield pyarrow.compute.coalesce(texts, names)
                        continue
                    rows = zip(names.to_pylist(), texts.to_pylist(), rdf_texts.to_pylist(), strict=True)
                    known = ((name, text, {name: (0, stated)} if stated else {}) for name, text, stated in rows)
                    yield pyarrow.array(
                        [text or readable_name(name, stated) for name, text, stated in known], pyarrow.binary()
                    )

        with progress("writing readable names", None) as advance:
            _write_vocabulary(self.result, "labels", labels(), advance)

    def _insert_pairs(self, table: str, pairs: Iterator[tuple[str, str]], what: str) -> None:
        """Make a table (seq, a, b) of pairs of names."""
        import pyarrow

        self.engine.execute(f"CREATE OR REPLACE TABLE {table} (seq BIGINT, a BLOB, b BLOB)")
        done = 0
        with progress(f"reading {what}", None) as advance:
            for some in _batches(pairs, LABELS_AT_ONCE):
                first, second = zip(*some, strict=True)
                columns = [pyarrow.array(texts, pyarrow.string()).view(pyarrow.binary()) for texts in (first, second)]
                batch = pyarrow.table([pyarrow.array(np.arange(done, done + len(some))), *columns], ["seq", "a", "b"])
                self.engine.register("batch", batch)
                self.engine.execute(f"INSERT INTO {table} SELECT * FROM batch")
                done += len(some)
                advance(done, f"{done:,} rows")

    def write_types(self, relations: list[bytes]) -> None:
        """Write the types of entities: from the file, or else from rdf:type, or else from their names."""
        graph = self.work.graph()
        if self.types is not None:
            rows = read_pairs_table(self.types)
            pairs = ((row[0], row[2] if len(row) > 2 and row[2] else row[1]) for row in rows)
            self._insert_pairs("typed", pairs, self.types.name)
            self.engine.execute(
                f"CREATE OR REPLACE TABLE entries AS SELECT id, b AS kind, seq FROM typed JOIN {self._ids} ON name = a"
            )
            kinds = self._rows("SELECT kind FROM entries GROUP BY kind ORDER BY min(seq)")
            self._write_entries([kind for (kind,) in kinds], len(graph.entities))
            return
        stated = self._stated_types(graph)
        if stated is None and (table := types_from_names(graph.entities)) is not None:
            table.save(self.result)

    def _stated_types(self, graph: Graph) -> bool | None:
        """Write the types that rdf:type states; None if it states none."""
        relation = graph.relations.find(RDF_TYPE)
        if relation is None:
            return None
        inverse = graph.relation_ids == relation + len(graph.relations)  # edges from classes
        at = np.flatnonzero(inverse)
        owners = graph.heads_of(at)
        members = np.asarray(graph.tail_ids[at])
        classes, places = np.unique(owners, return_inverse=True)
        found = class_names(graph.entities, graph.labels, classes)
        if found is None:
            return None
        names, numbers, kept = found
        chosen = kept[places]
        TypeTable.of(names, members[chosen], numbers[places[chosen]], len(graph.entities)).save(self.result)
        return True

    def _write_entries(self, kinds: list[bytes], entities: int) -> None:
        import pyarrow

        Vocabulary.of(kinds).save(self.result, "types")
        listed = {"number": np.arange(len(kinds), dtype=np.int32), "kind": pyarrow.array(kinds, pyarrow.binary())}
        self.engine.register("kinds", pyarrow.table(listed))
        counts = np.zeros(entities + 1, np.int64)
        with ArrayWriter(self.result / "types.members.npy", np.int32) as members:
            query = "SELECT DISTINCT id, number FROM entries JOIN kinds USING (kind) ORDER BY id, number"
            for batch in self._stream(query):
                owners = _numbers(batch.column(0))
                np.add.at(counts, owners + 1, 1)
                members.write(_numbers(batch.column(1)))
        np.save(self.result / "types.offsets.npy", np.cumsum(counts), allow_pickle=False)

    def write_groups(self) -> None:
        """Write the entities of each type."""
        TypeTable.open(self.result, len(self.work.graph().entities)).save_groups(self.result)

    def sorted_words(self, keys: Iterator[Keys]) -> Iterator[np.ndarray]:
        """The offsets of words, sorted by their keys."""
        import pyarrow
        from pyarrow.parquet import ParquetWriter

        schema = pyarrow.schema([("a", pyarrow.uint64()), ("b", pyarrow.uint64()), ("start", pyarrow.int64())])
        file = self.folder / "words.parquet"
        with ParquetWriter(file, schema, compression="lz4", use_dictionary=False) as writer:
            for some in keys:
                writer.write_table(pyarrow.table([pyarrow.array(column) for column in some], schema))
        query = f"SELECT start FROM read_parquet({_text(str(file))}) ORDER BY a, b, start"
        for batch in self._stream(query, "sorting words"):
            yield _numbers(batch.column(0))
        file.unlink()

    def _stream(self, query: str, title: str | None = None) -> Iterator[Any]:
        """The rows of a query in batches, none of which is empty; with a title, its progress is shown."""
        with self._shown(title) if title else nullcontext():
            for batch in self.engine.sql(query).to_arrow_reader(BATCH):
                if batch.num_rows:
                    yield batch

    @contextmanager
    def _shown(self, title: str) -> Iterator[None]:
        """Show how much of the running query is done."""
        over = threading.Event()
        with progress(title, 100.0) as advance, ThreadPoolExecutor(1) as pool:

            def show() -> None:
                while not over.wait(PROGRESS_SECONDS):
                    advance(max(0.0, self.engine.query_progress()))

            pool.submit(show)
            try:
                yield
            finally:
                over.set()

    def _one(self, query: str) -> tuple[Any, ...]:
        """The only row of a query."""
        (row,) = self._rows(query)
        return row

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query that has few."""
        rows: list[tuple[Any, ...]] = self.engine.execute(query).fetchall()
        return rows


class Labels:
    """Passes the labels of RDF on, some at a time, in the order in which they were read."""

    def __init__(self, count: int) -> None:
        self.count = count

    @staticmethod
    def schema() -> Any:
        import pyarrow

        fields = [("name", pyarrow.binary()), ("rank", pyarrow.int64()), ("seq", pyarrow.int64())]
        return pyarrow.schema([*fields, ("text", pyarrow.binary())])

    def take(self, report: CompileReport, writer: Any, all: bool = False) -> None:
        """Write the labels of the report, and remove them from it, if they are many or `all`."""
        import pyarrow

        if not report.labels or not (all or len(report.labels) >= LABELS_AT_ONCE):
            return
        ranks, texts = zip(*report.labels.values(), strict=True)
        seq = np.arange(self.count, self.count + len(texts))
        columns = [list(report.labels), list(ranks), seq, list(texts)]
        schema = self.schema()
        arrays = [pyarrow.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
        writer.write_table(pyarrow.table(arrays, schema))
        self.count += len(texts)
        report.labels.clear()


def _note_ends(ends: dict[int, list[str]], relations: np.ndarray, names: list[bytes], codes: np.ndarray) -> None:
    """Note the first head and tail, and the last tail, of each relation."""
    present, first = np.unique(relations, return_index=True)
    last = len(relations) - 1 - np.unique(relations[::-1], return_index=True)[1]
    for relation, begin, end in zip(present.tolist(), first.tolist(), last.tolist(), strict=True):
        head, tail, final = (names[code].decode() for code in (*codes[begin, [0, 2]], codes[end, 2]))
        ends.setdefault(relation, [head, tail, final])[2] = final


def _write_vocabulary(folder: Path, prefix: str, columns: Iterator[Any], advance: Any) -> None:
    """Write the arrays of a vocabulary of names, which come as arrays of Arrow."""
    with (
        ArrayWriter(folder / f"{prefix}.text.npy", np.uint8) as text,
        ArrayWriter(folder / f"{prefix}.ends.npy", np.int64) as ends,
    ):
        sums = [np.zeros(0, np.uint32)]
        for column in columns:
            raw = column.to_pylist()
            lengths = np.fromiter(map(len, raw), np.int64, count=len(raw))
            ends.write(text.count + np.cumsum(lengths))
            text.write(np.frombuffer(b"".join(raw), np.uint8))
            sums.append(np.fromiter(map(zlib.crc32, raw), np.uint32, count=len(raw)))
            advance(ends.count, f"{ends.count:,} names")
    checksums = np.concatenate(sums)
    order = np.argsort(checksums, kind="stable").astype(np.int32)
    np.save(folder / f"{prefix}.sums.npy", checksums[order], allow_pickle=False)
    np.save(folder / f"{prefix}.order.npy", order, allow_pickle=False)


def _batches(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    batch = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _numbers(column: Any) -> np.ndarray:
    """A column of numbers without nulls as an array, which can be changed."""
    return np.array(column.to_numpy(zero_copy_only=False))


def _text(value: str | list[str]) -> str:
    """A text, or a list of them, in SQL."""
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return "'" + value.replace("'", "''") + "'"
