"""The rank of every query, stored compressed beside the records, so that two models can be compared query by query.

`MODEL.ranks.npz`, which numpy can read, lies beside `MODEL.jsonl`. It holds an array of whole numbers, 2 × rank, for
each record that was stored with its ranks. The order of queries depends only on the benchmark and the references: by
relation as in the record, then by head, then as in the benchmark.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fewlink.core.errors import InputError, reading
from fewlink.core.files import write_bytes
from fewlink.core.metrics import HITS

if TYPE_CHECKING:
    from fewlink.evaluation.evaluator import Evaluation
    from fewlink.evaluation.records import Record

SUFFIX = ".ranks.npz"
MRR_TOLERANCE = 1e-9  # for rounding: sums in another order
REMEDY = "remove the file and repeat the evaluations"


@dataclass(frozen=True)
class QueryRanks:
    """The rank of each query of an evaluation.

    Shapes: `ranks` (q,) float64, relation by relation; `counts` (r,) int64, the queries of each of the `relations`.
    `digest` is a hash of relations and queries: ranks with the same digest have the same queries in the same order.
    """

    relations: tuple[str, ...]
    counts: np.ndarray
    ranks: np.ndarray
    digest: str

    @classmethod
    def of(cls, evaluation: Evaluation) -> QueryRanks:
        """The ranks of all queries of an evaluation."""
        digest = hashlib.sha256()
        for task in evaluation.tasks:
            digest.update(f"{task.relation}\0{len(task.queries)}\0".encode("utf-8", "backslashreplace"))
            digest.update(np.ascontiguousarray(task.queries, "<i4").data)
        ranks = np.concatenate([task.ranks for task in evaluation.tasks])
        counts = np.array([len(task.ranks) for task in evaluation.tasks])
        return cls(tuple(task.relation for task in evaluation.tasks), counts, ranks, digest.hexdigest()[:16])

    def gains(self, metric: str = "mrr") -> np.ndarray:
        """The terms (q,) whose mean is a metric: 1 / rank for `mrr`, 0 or 1 for `hits@k`."""
        if metric == "mrr":
            return 1 / self.ranks
        return np.asarray(self.ranks <= {f"hits@{k}": k for k in HITS}[metric], float)

    def agrees(self, record: Record) -> bool:
        """Whether the ranks give the record's MRR, of each relation and of all queries."""
        if len(self.ranks) != self.counts.sum() or not len(self.ranks):
            return False
        by_relation = np.split(self.gains(), np.cumsum(self.counts)[:-1])
        computed = [self.gains().mean(), *(gains.mean() if len(gains) else 0 for gains in by_relation)]
        stored = [record.metrics["micro"]["mrr"], *(row["mrr"] for row in record.relations.values())]
        return len(computed) == len(stored) and bool(np.allclose(computed, stored, rtol=0, atol=MRR_TOLERANCE))


def ranks_file(file: Path) -> Path:
    """The file with the ranks of a file of records."""
    return file.with_name(f"{file.name.removesuffix(file.suffix)}{SUFFIX}")


def read_ranks(file: Path, record: Record) -> QueryRanks | None:
    """Read the ranks of a record in a file; None if it was stored without them.

    Raise if they do not give the record's MRR.
    """
    path = ranks_file(file)
    arrays = _read(path, _prefix(record))
    if not arrays:
        return None
    if len(arrays) > 1:
        raise InputError(path, f"has the ranks of a record twice: {REMEDY}")
    ((name, content),) = arrays.items()
    with reading(path, REMEDY):
        doubled = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
        counts = np.array([int(row["queries"]) for row in record.relations.values()])
        ranks = QueryRanks(tuple(record.relations), counts, doubled / 2, name.removesuffix(".npy").rpartition("_")[2])
        agrees = ranks.agrees(record)
    if not agrees:
        problem = f"has ranks that do not give the MRR of a record in {file.name}"
        raise InputError(path, f"{problem}: repeat the evaluation with --replace")
    return ranks


def write_ranks(file: Path, record: Record, ranks: QueryRanks | None) -> None:
    """Replace the stored ranks of a record in a file; None removes them. The caller holds the lock.

    The bytes of the file depend only on the ranks it holds.
    """
    path = ranks_file(file)
    arrays = _read(path)
    kept = {name: content for name, content in arrays.items() if not name.startswith(_prefix(record))}
    if ranks is not None:
        kept[f"{_prefix(record)}{ranks.digest}.npy"] = _packed(ranks.ranks)
    if kept == arrays:
        return
    if not kept:
        path.unlink(missing_ok=True)
        return
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(kept):
            archive.writestr(zipfile.ZipInfo(name), kept[name], zipfile.ZIP_DEFLATED, 9)
    write_bytes(path, buffer.getvalue())


def _prefix(record: Record) -> str:
    """The protocol, and a hash of the record's whole key."""
    protocol = (record.split, record.shots, record.candidates, record.references, record.seed)
    digest = hashlib.sha256(repr(record.key).encode("utf-8", "backslashreplace")).hexdigest()
    return "_".join([*map(str, protocol), digest[:8], ""])


def _packed(ranks: np.ndarray) -> bytes:
    """2 × rank in the .npy format, in the smallest integer type that fits."""
    doubled = np.rint(2 * ranks).astype(np.int64)
    kind = next(kind for kind in ("u1", "<u2", "<u4", "<u8") if doubled.max(initial=0) <= np.iinfo(kind).max)
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, doubled.astype(kind), version=(1, 0), allow_pickle=False)
    return buffer.getvalue()


def _read(path: Path, prefix: str = "") -> dict[str, bytes]:
    """The arrays whose names have a prefix, as .npy files by name; empty if there is no file."""
    if not path.exists():
        return {}
    with reading(path, REMEDY), zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            archive.open(name).close()  # raises if the two copies of the name differ
        return {name: archive.read(name) for name in archive.namelist() if name.startswith(prefix)}
