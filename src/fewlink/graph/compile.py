"""Compile files of triples into a graph: DuckDB numbers names and sorts edges, in memory or on disk.

The tables of the engine are `raw` (h, r, t), the triples as read; `entity` and `relation` (id, name), numbered by first
appearance; and `triple` (h, r, t, p), ids and the place in the files. No stage changes what an earlier one has made.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fewlink.core.errors import FewlinkError, InputError, writing
from fewlink.core.files import beside, locked, new_folder, real, sha256_json, sync
from fewlink.core.progress import progress, tell
from fewlink.graph.formats import read_files
from fewlink.graph.graph import EDGE_ARRAYS, FORMAT, LARGE, Graph
from fewlink.graph.literals import LITERAL, MIN_SHARE, MIN_TRIPLES, is_literal
from fewlink.graph.name_index import ArrayWriter, Keys
from fewlink.graph.source import CompileReport, FileFacts, GraphSource
from fewlink.graph.tables import connect, first_line, side_rows, sql
from fewlink.graph.types import RDF_TYPE, TypeTable, types_from_names
from fewlink.graph.vocabulary import Interner, Vocabulary, load_array

DEFAULT_BYTES = 4 << 30  # of memory that a compilation takes, about
LEAST_BYTES = 256 << 20  # of memory that DuckDB needs
ENGINE_SHARE = 0.3  # of the memory is for DuckDB: with more it is a tenth quicker and takes nearly twice as much
BATCH = 1 << 22  # rows of the engine that are fetched at once
MAX_TRIPLES = 2**31 - 1  # positions of triples are int32
SAMPLED_ROWS = 1_000  # of a side file, which are checked for being triples
PROGRESS_SECONDS = 0.2  # between two looks at the running query
VOCABULARIES = (
    "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "http://www.w3.org/2000/01/rdf-schema#",
    "http://www.w3.org/2002/07/owl#",
    "http://www.w3.org/2004/02/skos/core#",
)


def compile_graph(
    file: Path | str | Sequence[Path | str] | GraphSource,
    *,
    types: Path | str | None = None,
    names: Path | str | None = None,
    columns: str | Mapping[str, str | int] | None = None,
    on_error: str = "stop",
    literals: str = "drop",
    report: CompileReport | None = None,
) -> Graph:
    """Read one or several files of triples into a graph in memory.

    types, names  files of `entity<TAB>type`, and of `id<TAB>readable name` for entities and relations
    columns       the columns of a table, such as `head=2,relation=1,tail=3` or `head=source,relation=type,tail=target`,
                  if its header does not tell them
    on_error      a bad line raises an error with its file and line number; with "skip", it is counted in `report`
    literals      relations whose tails are numbers, dates or truth values are left out; with "keep", they are read
    """
    import duckdb

    source = GraphSource.of(file, types=types, names=names, columns=columns, on_error=on_error, literals=literals)
    report = report or CompileReport()
    try:
        with connect() as engine:
            return _in_memory(engine, source, report)
    except duckdb.OutOfMemoryException as error:
        remedy = "compile it into a folder with fewlink data compile, which takes less memory"
        raise FewlinkError(f"{source.file} could not be read ({first_line(error)}): {remedy}") from None


def _in_memory(engine: Any, source: GraphSource, report: CompileReport) -> Graph:
    read_triples(engine, source, report)
    if not report.triples:
        raise report.no_triples(source.paths)
    arrays = Arrays(None)
    write_edges(engine, arrays, report)
    write_names(engine, arrays, source, report)
    graph = arrays.graph()
    return dataclasses.replace(graph, types=types_of(engine, graph, source))


def compile_to_folder(
    source: GraphSource,
    out: Path,
    *,
    memory: int = DEFAULT_BYTES,
    large: int = LARGE,
    report: CompileReport | None = None,
) -> Graph:
    """Compile files of triples into the folder of a graph, in about `memory` bytes, and open it.

    Of more than `large` triples, what is counted of them is stored as well, as by `Graph.save`.
    The work is done in a folder beside it. Called again after an interruption, the finished stages are not repeated.
    """
    import duckdb

    report = report or CompileReport()
    out = real(out)
    with writing(out), locked(out):
        work = Work(beside(out, "work"), source, memory, large)
        try:
            graph = work.run(report)
        except duckdb.Error as error:  # there is too little memory, or disk
            work.engine.close()
            remedy = "free some disk, or give more --memory; the same command continues"
            raise FewlinkError(f"{out} could not be compiled ({first_line(error)}): {remedy}") from None
        except FewlinkError:  # the files must be changed
            work.remove()
            raise
        with new_folder(out, FORMAT, graph.facts) as draft:
            for file in sorted(work.result.iterdir()):
                _link(file, draft / file.name)
        work.remove()
    return Graph.open(out)


def forget_work(out: Path) -> None:
    """Remove what an interrupted compilation to a folder has left beside it."""
    shutil.rmtree(beside(real(out), "work"), ignore_errors=True)


def _link(file: Path, to: Path) -> None:
    try:
        os.link(file, to)
    except OSError:  # a file system without links
        shutil.copyfile(file, to)


class Work:
    """A compilation in a folder: DuckDB's database, which also lists the finished stages, and the `result`."""

    def __init__(self, folder: Path, source: GraphSource, memory: int, large: int) -> None:
        self.folder = folder
        self.large = large
        self.source = source
        self.memory = memory
        self.result = folder / "result"
        self.database = folder / "work.db"
        files = [path for path in (*source.paths, source.types, source.names) if path is not None]
        facts = [(str(real(file)), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        key = sha256_json([facts, repr(source), large, FORMAT])
        self._connect()
        if self._done("key") not in (None, key):
            self.remove()
            self._connect()
        elif self._done("key"):
            tell(f"continuing the work in {folder}")
        self.once("key", lambda: key)

    def _connect(self) -> None:
        if not self.database.exists():  # what lies beside belongs to another one
            shutil.rmtree(self.folder, ignore_errors=True)
        self.result.mkdir(parents=True, exist_ok=True)
        limit = f"{max(int(ENGINE_SHARE * self.memory), LEAST_BYTES) >> 20}MiB"
        spill = str(self.folder / "spill")
        self.engine = connect(str(self.database), memory_limit=limit, temp_directory=spill)
        self.engine.execute("CREATE TABLE IF NOT EXISTS done (stage VARCHAR, facts VARCHAR)")

    def _done(self, stage: str) -> Any:
        """What a finished stage returned, or None."""
        rows = self.engine.execute(f"SELECT facts FROM done WHERE stage = {sql(stage)}").fetchall()
        return json.loads(rows[0][0]) if rows else None

    def once(self, stage: str, run: Callable[[], Any]) -> Any:
        """Run a stage, or return what it returned when it was finished.

        A stage makes its tables and files anew from what earlier ones have made, so that it can be repeated. It is no
        transaction, because rows that are not committed have other numbers.
        """
        if (before := self._done(stage)) is not None:
            return before
        facts = json.dumps(run())
        for file in self.result.iterdir():
            sync(file)
        self.engine.execute(f"INSERT INTO done VALUES ({sql(stage)}, {sql(facts)})")
        return json.loads(facts)

    def run(self, report: CompileReport) -> Graph:
        """Run all stages that are not finished, and fill the report."""
        arrays = Arrays(self.result)

        def reported(stage: str, run: Callable[[], None]) -> None:
            """Run a stage that fills the report, or take what it had filled in."""

            def facts_of() -> dict[str, Any]:
                run()
                return dataclasses.asdict(report)

            facts = self.once(stage, facts_of)
            facts["files"] = [FileFacts(**each) for each in facts["files"]]
            vars(report).update(facts)

        reported("triples", lambda: read_triples(self.engine, self.source, report))
        if not report.triples:
            raise report.no_triples(self.source.paths)
        reported("edges", lambda: write_edges(self.engine, arrays, report))
        self.once("names", lambda: write_names(self.engine, arrays, self.source, report))
        self.once("types", lambda: self._write_types(arrays))
        graph = arrays.graph()
        if graph.triple_count > self.large:
            self.once("counted", lambda: graph.write_counted(self.result, memory=max(self.memory // 2, LEAST_BYTES)))
            self.once("index", lambda: graph.write_indexes(self.result, self._sorted_words))
        return graph

    def _write_types(self, arrays: Arrays) -> bool:
        graph = arrays.graph()
        table = types_of(self.engine, graph, self.source)
        if table is not None:
            table.save(self.result)
            if graph.triple_count > self.large:
                table.save_groups(self.result)
        return table is not None

    def _sorted_words(self, keys: Iterator[Keys]) -> Iterator[np.ndarray]:
        """The offsets of words, sorted by their keys."""
        self.engine.execute("CREATE OR REPLACE TEMP TABLE word (a UBIGINT, b UBIGINT, start BIGINT)")
        for first, second, starts in keys:
            self.engine.register("block", {"a": first, "b": second, "start": starts})
            self.engine.execute("INSERT INTO word SELECT * FROM block").fetchall()
            self.engine.unregister("block")
        for batch in batches(self.engine, "SELECT start FROM word ORDER BY a, b, start", "sorting words"):
            yield batch["start"]
        self.engine.execute("DROP TABLE word")

    def remove(self) -> None:
        """Remove everything, first the list of finished stages."""
        self.engine.close()
        self.database.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


class Arrays:
    """The arrays of a graph while they are made: files in a folder or, without one, in memory."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.made: dict[str, np.ndarray] = {}

    @contextmanager
    def writer(self, name: str, kind: type) -> Iterator[Callable[[np.ndarray], None]]:
        """A function that appends to an array."""
        if self.folder is not None:
            with ArrayWriter(self.folder / f"{name}.npy", kind) as file:
                yield file.write
            return
        parts: list[np.ndarray] = [np.zeros(0, kind)]
        yield parts.append
        self.made[name] = np.concatenate(parts).astype(kind, copy=False)

    def save(self, name: str, array: np.ndarray) -> None:
        if self.folder is None:
            self.made[name] = array
        else:
            np.save(self.folder / f"{name}.npy", array, allow_pickle=False)

    def changeable(self, name: str) -> np.ndarray:
        """An array whose values can be changed."""
        if self.folder is None:
            return self.made[name]
        array: np.ndarray = np.load(self.folder / f"{name}.npy", mmap_mode="r+" if self.has(name) else None)
        return array

    def has(self, name: str) -> bool:
        """Whether there is an array, which is not empty."""
        return len(self[name]) > 0

    def __contains__(self, name: str) -> bool:
        return name in self.made if self.folder is None else (self.folder / f"{name}.npy").exists()

    def __getitem__(self, name: str) -> np.ndarray:
        return self.made[name] if self.folder is None else load_array(self.folder / f"{name}.npy")

    def graph(self) -> Graph:
        """The graph, without types and what is counted of it."""

        def vocabulary(name: str) -> Vocabulary:
            return Vocabulary(*(self[f"{name}.{array}"] for array in Vocabulary.ARRAYS))

        edges: dict[str, Any] = {array: self[array] for array in EDGE_ARRAYS}
        labels = vocabulary("labels") if "labels.text" in self else None
        return Graph(vocabulary("entities"), vocabulary("relations"), **edges, labels=labels)


def read_triples(
    engine: Any, source: GraphSource, report: CompileReport, known: tuple[Sequence[str], Sequence[str]] = ((), ())
) -> None:
    """Read files, leave out literals, and number names by first appearance, after those that are `known`."""
    run = engine.execute
    run("CREATE OR REPLACE TABLE entity (id INTEGER, name VARCHAR)")
    run("CREATE OR REPLACE TABLE relation (id INTEGER, name VARCHAR)")
    for table, names in zip(("entity", "relation"), known, strict=True):
        if names:
            engine.register("block", {"id": np.arange(len(names)), "name": np.array(names, object)})
            run(f"INSERT INTO {table} SELECT * FROM block").fetchall()
            engine.unregister("block")
    with _shown(engine, f"reading {', '.join(path.name for path in source.paths)}"):
        read_files(engine, source, report)
    if report.triples > MAX_TRIPLES:
        raise FewlinkError(f"the files have over {MAX_TRIPLES:,} triples: give fewer")
    run("CREATE OR REPLACE VIEW fact AS SELECT h, r, t, rowid AS place, rowid::INTEGER AS p FROM raw")
    used = ""
    if not source.keep_literals and _leave_out_literals(engine, report):
        used = "SEMI JOIN (SELECT h AS name FROM fact UNION SELECT t FROM fact) USING (name)"
    ends = "SELECT h AS name, 2 * rowid AS place FROM raw UNION ALL SELECT t, 2 * rowid + 1 FROM raw"
    _number(engine, "entity", ends, used)
    used = used and "SEMI JOIN (SELECT DISTINCT r AS name FROM fact) USING (name)"
    _number(engine, "relation", "SELECT r AS name, rowid AS place FROM raw", used)
    with _shown(engine, "numbering names"):
        run(
            "CREATE OR REPLACE TABLE triple AS SELECT a.id AS h, relation.id AS r, b.id AS t, p FROM fact "
            "JOIN entity a ON a.name = h JOIN relation ON relation.name = r JOIN entity b ON b.name = t"
        ).fetchall()
    run("DROP VIEW fact; DROP TABLE raw; DROP TABLE IF EXISTS literal")


def _number(engine: Any, table: str, names: str, used: str) -> None:
    """Add to a table of ids the names that it lacks, in the order of their first places."""
    numbers = f"(SELECT count(*) FROM {table}) + row_number() OVER (ORDER BY first) - 1"
    firsts = f"SELECT name, min(place) AS first FROM ({names}) GROUP BY name"
    new = f"({firsts}) {used} ANTI JOIN {table} USING (name)"
    engine.execute(f"INSERT INTO {table} SELECT {numbers}, name FROM {new}").fetchall()


def _leave_out_literals(engine: Any, report: CompileReport) -> bool:
    """Take the triples whose tails are literals out of the view `fact`; return whether there are any.

    Only relations with at least three triples count whose tails are nearly all literals, none of which is the head of a
    triple, and whose heads are no literals: numbers may be ids of entities. A relation whose first and last tail are no
    literals is not examined further.
    """
    run = engine.execute
    ends = run("SELECT r, arg_min(h, rowid), arg_min(t, rowid), arg_max(t, rowid) FROM raw GROUP BY r").fetchall()
    suspects = [
        relation
        for relation, head, first, last in ends
        if (is_literal(first) or is_literal(last)) and not is_literal(head)
    ]
    if not suspects:
        return False
    run(
        "CREATE OR REPLACE TABLE literal AS SELECT r, t, count(*) AS n, "
        f"regexp_full_match(t, {sql(LITERAL)}, 'is') AS is_literal FROM raw WHERE r IN {_list(suspects)} GROUP BY r, t"
    )
    found = run(
        f"SELECT r FROM literal GROUP BY r HAVING sum(n) >= {MIN_TRIPLES} "
        f"AND coalesce(sum(n) FILTER (is_literal), 0) / sum(n) >= {MIN_SHARE} "
        "EXCEPT SELECT r FROM literal WHERE is_literal AND t IN (SELECT h FROM raw) "
        f"EXCEPT SELECT r FROM raw WHERE r IN {_list(suspects)} AND regexp_full_match(h, {sql(LITERAL)}, 'is')"
    ).fetchall()
    relations = [relation for (relation,) in found]
    if not relations:
        return False
    left_out = f"r IN {_list(relations)} AND regexp_full_match(t, {sql(LITERAL)}, 'is')"
    ((count,),) = run(f"SELECT count(*) FROM raw WHERE {left_out}").fetchall()
    order = run(f"SELECT r FROM raw WHERE {left_out} GROUP BY r ORDER BY (SELECT 1), min(rowid)").fetchall()
    report.literals += count
    report.triples -= count
    report.literal_relations += [relation for (relation,) in order]
    run(
        "CREATE OR REPLACE VIEW fact AS SELECT h, r, t, rowid AS place, "
        f"(row_number() OVER (ORDER BY rowid) - 1)::INTEGER AS p FROM raw WHERE NOT ({left_out})"
    )
    return True


def _list(texts: Sequence[str]) -> str:
    return f"({', '.join(map(sql, texts))})"


def write_edges(engine: Any, arrays: Arrays, report: CompileReport) -> None:
    """Write the arrays of edges, each triple once, and count what was left out."""
    run = engine.execute
    ((entities,),) = run("SELECT count(*) FROM entity").fetchall()
    ((relations,),) = run("SELECT count(*) FROM relation").fetchall()
    query = (
        f"SELECT * FROM (SELECT h, r, t, p FROM triple UNION ALL SELECT t, r + {relations}, h, p FROM triple) "
        "ORDER BY 1, 2, 3, 4"
    )
    degrees = np.zeros(entities + 1, np.int64)
    repeated = [np.zeros(0, np.int32)]
    last = np.full(3, -1)
    with (
        arrays.writer("relation_ids", np.int32) as write_relations,
        arrays.writer("tail_ids", np.int32) as write_tails,
        arrays.writer("positions", np.int32) as write_positions,
    ):
        for batch in batches(engine, query, "sorting edges"):
            heads, middles, tails, places = (batch[name] for name in "hrtp")
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
                report.self_loops += int(((heads == tails) & (middles < relations)).sum())
            write_relations(middles)
            write_tails(tails)
            write_positions(places)
    arrays.save("offsets", np.cumsum(degrees))
    left_out = np.concatenate(repeated)
    report.duplicates += len(left_out)
    if len(left_out):  # positions count without the triples that were left out
        ((triples,),) = run("SELECT count(*) FROM triple").fetchall()
        before = np.zeros(triples, np.int32)
        before[left_out] = 1
        np.cumsum(before, out=before)
        positions = arrays.changeable("positions")
        for at in range(0, len(positions), BATCH):
            positions[at : at + BATCH] -= before[positions[at : at + BATCH]]


def write_names(engine: Any, arrays: Arrays, source: GraphSource, report: CompileReport) -> bool:
    """Write the names of entities and relations, and their readable names if there are any."""
    for table, prefix in (("entity", "entities"), ("relation", "relations")):
        _write_vocabulary(engine, arrays, prefix, f"SELECT name FROM {table} ORDER BY id")
    check_side_files(engine, source)
    labels = labels_query(engine, source, report)
    if labels is not None:
        _write_vocabulary(engine, arrays, "labels", labels)
    return labels is not None


def labels_query(engine: Any, source: GraphSource, report: CompileReport) -> str | None:
    """The readable names of all entities and relations in SQL: of the file of names, or else stated, or else the ids.

    None if there is no file and nothing was stated.
    """
    run = engine.execute
    ((stated,),) = run("SELECT count(*) FROM label").fetchall()
    if source.names is None and not (stated or report.has_rdf):
        return None
    run("CREATE OR REPLACE TABLE given (name VARCHAR, text VARCHAR)")
    if source.names is not None:
        side_rows(engine, source.names, "side")
        run("INSERT INTO given SELECT row[1], arg_max(row[2], line) FROM side GROUP BY row[1]")
    run(
        "CREATE OR REPLACE TABLE stated AS SELECT name, arg_min(text, rank * 1099511627776 + rowid) AS text "
        "FROM label GROUP BY name"
    )
    own = "name"
    if report.has_rdf:  # the end of an IRI
        end = "coalesce(nullif(regexp_extract(name, '[^/#]*$'), ''), name)"
        own = f"CASE WHEN starts_with(name, 'http://') OR starts_with(name, 'https://') THEN {end} ELSE name END"
    every = "SELECT 0 AS kind, * FROM entity UNION ALL SELECT 1, * FROM relation"
    joined = f"({every}) LEFT JOIN given USING (name) LEFT JOIN stated USING (name)"
    return f"SELECT coalesce(given.text, stated.text, {own}) AS name FROM {joined} ORDER BY kind, id"


def check_side_files(engine: Any, source: GraphSource) -> None:
    """Raise if a file of types or readable names holds triples, or describes nothing in the graph."""
    if source.types is not None:
        check_describes(engine, source.types, "an entity, a tab and a type", "entity")
    if source.names is not None:
        check_describes(engine, source.names, "an id, a tab and a readable name", "entity", "relation")


def check_describes(engine: Any, path: Path, line: str, *tables: str) -> None:
    """Raise if a side file holds triples, or no row that describes a name in one of the tables.

    `line` is the expected content of a line, in words.
    """
    run = engine.execute
    side_rows(engine, path, "side")
    sample = f"SELECT row FROM side ORDER BY line LIMIT {SAMPLED_ROWS}"
    ((rows, triples),) = run(
        "SELECT count(*), count(*) FILTER (len(row) = 3 AND row[1] IN (SELECT name FROM entity) AND row[2] IN "
        f"(SELECT name FROM relation) AND row[3] IN (SELECT name FROM entity)) FROM ({sample})"
    ).fetchall()
    if triples > rows / 2:
        raise InputError(path, f"holds triples: each line must be {line}")
    described = " UNION ALL ".join(f"SELECT 1 FROM {table} WHERE name IN (SELECT row[1] FROM side)" for table in tables)
    first = run("SELECT name FROM entity ORDER BY id LIMIT 1").fetchall()
    if first and not run(f"SELECT * FROM ({described}) LIMIT 1").fetchall():
        raise InputError(
            path, f"names no entity of the graph, whose first is '{first[0][0]}': give the file of this graph"
        )


def types_of(engine: Any, graph: Graph, source: GraphSource) -> TypeTable | None:
    """The types of entities: from the file, or else stated by rdf:type or STIX, or else in their names."""
    if source.types is not None:
        return types_from_file(engine, source.types, len(graph.entities))
    return stated_types(engine, graph) or types_from_names(graph.entities)


def types_from_file(engine: Any, path: Path, entities: int) -> TypeTable:
    """The types of a file with rows `entity<TAB>type[<TAB>readable type]`, of entities of the graph."""
    side_rows(engine, path, "side")
    kinds = "SELECT row[1] AS name, coalesce(nullif(row[3], ''), row[2]) AS kind, line FROM side"
    return _types_in(engine, kinds, entities)


def stated_types(engine: Any, graph: Graph) -> TypeTable | None:
    """The types that rdf:type or STIX state; None if there are none."""
    stated = _types_from_triples(graph)
    if stated is None and engine.execute("SELECT 1 FROM kind LIMIT 1").fetchall():
        stated = _types_in(
            engine, "SELECT name, kind, id AS line FROM kind JOIN entity USING (name)", len(graph.entities)
        )
    return stated


def _types_from_triples(graph: Graph) -> TypeTable | None:
    """The types that triples with rdf:type state, by the names of their classes; None if there are none.

    Classes of RDF's own vocabularies (owl:Thing, skos:Concept, …) are ignored: they do not say what an entity is.
    """
    relation = graph.relations.find(RDF_TYPE)
    if relation is None:
        return None
    of_classes = np.flatnonzero(graph.relation_ids == relation + len(graph.relations))
    classes, places = np.unique(graph.heads_of(of_classes), return_inverse=True)
    members = np.asarray(graph.tail_ids[of_classes])
    found = _class_names(graph, classes)
    if found is None:
        return None
    names, numbers, kept = found
    chosen = kept[places]
    return TypeTable.of(names, members[chosen], numbers[places[chosen]], len(graph.entities))


def _class_names(graph: Graph, classes: np.ndarray) -> tuple[Interner, np.ndarray, np.ndarray] | None:
    """The names of types, the number of each class (n,), and whether it says what an entity is (n,); None if none does.

    Classes that share a readable name keep their ids.
    """
    ids = [graph.entities[kind] for kind in classes.tolist()]
    kept = np.array([not name.startswith(VOCABULARIES) for name in ids], bool)
    if not kept.any():
        return None
    short = [graph.labels[kind] for kind in classes.tolist()] if graph.labels is not None else ids
    uses = Counter(short)
    interner = Interner()
    numbers = [interner[(text if uses[text] == 1 else name).encode()] for text, name in zip(short, ids, strict=True)]
    return interner, np.array(numbers, np.int32), kept


def _types_in(engine: Any, kinds: str, entities: int) -> TypeTable:
    """The types of a query (name, kind, line), numbered by their first lines."""
    run = engine.execute
    run(f"CREATE OR REPLACE TABLE typed AS SELECT id, kind, line FROM ({kinds}) JOIN entity USING (name)").fetchall()
    names = run("SELECT kind FROM typed GROUP BY kind ORDER BY min(line)").fetchall()
    numbers = "SELECT kind, row_number() OVER (ORDER BY min(line)) - 1 AS number FROM typed GROUP BY kind"
    found = run(f"SELECT id, number FROM typed JOIN ({numbers}) USING (kind)").fetchnumpy()
    return TypeTable.of([kind.encode() for (kind,) in names], found["id"], found["number"], entities)


def _write_vocabulary(engine: Any, arrays: Arrays, prefix: str, query: str) -> None:
    """Write the arrays of the vocabulary of names that a query (name) has in order."""
    sums = [np.zeros(0, np.uint32)]
    total = 0
    with (
        arrays.writer(f"{prefix}.text", np.uint8) as write_text,
        arrays.writer(f"{prefix}.ends", np.int64) as write_ends,
    ):
        for batch in batches(engine, f"SELECT encode(name) AS name FROM ({query})", "writing names"):
            raw = batch["name"].tolist()
            ends = total + np.cumsum(np.fromiter(map(len, raw), np.int64, count=len(raw)))
            total = int(ends[-1])
            write_ends(ends)
            write_text(np.frombuffer(b"".join(raw), np.uint8))
            sums.append(np.fromiter(map(zlib.crc32, raw), np.uint32, count=len(raw)))
    checksums = np.concatenate(sums)
    order = np.argsort(checksums, kind="stable").astype(np.int32)
    arrays.save(f"{prefix}.sums", checksums[order])
    arrays.save(f"{prefix}.order", order)


def batches(engine: Any, query: str, title: str) -> Iterator[dict[str, np.ndarray]]:
    """The rows of a query in its order, some at a time, none of which is empty."""
    with _shown(engine, title):
        engine.execute(f"CREATE OR REPLACE TEMP TABLE ordered AS {query}").fetchall()
    ((count,),) = engine.execute("SELECT count(*) FROM ordered").fetchall()
    for first in range(0, count, BATCH):
        some = f"SELECT * FROM ordered WHERE rowid >= {first} AND rowid < {first + BATCH}"
        found = engine.execute(some).fetchnumpy()
        yield {name: np.ma.getdata(column) for name, column in found.items()}
    engine.execute("DROP TABLE ordered")


@contextmanager
def _shown(engine: Any, title: str) -> Iterator[None]:
    """Show on a terminal how much of the running query is done."""
    if not sys.stderr.isatty():
        yield
        return
    over = threading.Event()
    with progress(title, 100.0) as advance, ThreadPoolExecutor(1) as pool:

        def show() -> None:
            while not over.wait(PROGRESS_SECONDS):
                advance(max(0.0, engine.query_progress()))

        pool.submit(show)
        try:
            yield
        finally:
            over.set()


def read_names_of(path: Path) -> list[tuple[str, str, str]]:
    """Read the triples of a small file as names, in file order."""
    with connect() as engine:
        read_files(engine, GraphSource.of(path, literals="keep"), CompileReport())
        names: list[tuple[str, str, str]] = engine.execute("SELECT h, r, t FROM raw ORDER BY rowid").fetchall()
    return names
