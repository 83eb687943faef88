"""Complete a relation: find its missing pairs, head by head, and write them to a file; interrupted runs resume.

Meanwhile FILE.part holds the results so far: a first line with the facts of the query, then one line for each batch of
heads, with its number and checksum, in the order in which workers finished them. When all heads are done, FILE is
written atomically and FILE.part is removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from fewlink.core.engine import Engine
from fewlink.core.errors import FewlinkError, InputError, json_shown
from fewlink.core.files import with_sha256, without_sha256, write_bytes
from fewlink.curation.exports import MADE_WITH, DecidedPair, csv_text
from fewlink.graph import Graph
from fewlink.linker.predictions import Prediction, Predictions
from fewlink.linker.probability import Calibration
from fewlink.linker.query import References, batch_name, batches_of
from fewlink.linker.ranking import RankedPairs
from fewlink.linker.trust import Trust
from fewlink.tasks.candidates import by_similarity, of_kind

FORMAT = "fewlink-completion/3"
SUFFIX = ".part"
REMEDY = "remove it to start over"
JSON_LINES = (".jsonl", ".json", ".ndjson")
SUFFIXES = (".tsv", ".csv", *JSON_LINES)
Row = Sequence[Any]


def plausible_heads(graph: Graph, references: References) -> np.ndarray:
    """The entities (h,) of the same kind as the heads of the references and of known pairs.

    Those without a known tail come first, then the others; within each, the most similar ones come first.
    """
    heads = references.answered_heads()
    relation = references.relation
    own = -1
    if relation is not None:
        number = graph.relations.find(relation.name)
        own = -1 if number is None else number + len(graph.relations) * relation.inverse
    order, _ = by_similarity(graph, heads, ignored=own)
    chosen: np.ndarray = order[of_kind(graph, heads, ignored=own)[order]]
    return chosen[np.argsort(np.isin(chosen, heads), kind="stable")]


def unanswered_first(pairs: RankedPairs, answered: np.ndarray) -> RankedPairs:
    """The pairs of heads without a known tail, then those of the `answered` heads (h,), each in their order."""
    return pairs.take(np.argsort(np.isin(pairs.heads, answered), kind="stable"))


def check_probabilities(calibration: Calibration | None, trust: Trust | None) -> None:
    """Raise if answers with this trust have no probabilities to compare with `min_probability`."""
    if calibration is None:
        raise FewlinkError("min_probability needs a calibrated model: fewlink.calibrate calibrates a run")
    note = calibration.note(trust, 1.0)
    if not note.shown:
        raise FewlinkError(f"min_probability needs percentages, and there are none ({note.sentence}): leave it out")


def digest(*ids: np.ndarray) -> str:
    """A short hash of arrays of entities."""
    return hashlib.sha256(b"|".join(np.asarray(each, np.int64).tobytes() for each in ids)).hexdigest()[:16]


def rows_of(pairs: RankedPairs) -> list[Row]:
    """Convert ranked pairs to rows for JSON."""
    columns = (getattr(pairs, column.name).tolist() for column in fields(pairs))
    return [list(row) for row in zip(*columns, strict=True)]


def pairs_of(rows: Sequence[Row]) -> RankedPairs:
    """Convert the rows of `rows_of` back to ranked pairs."""
    empty = RankedPairs.joined([])
    if not rows:
        return empty
    kinds = [getattr(empty, column.name).dtype for column in fields(empty)]
    columns = zip(*rows, strict=True)
    return RankedPairs(*(np.array(values, kind) for values, kind in zip(columns, kinds, strict=True)))


def write_completion(out: Path, predictions: Predictions, facts: Mapping[str, Any]) -> None:
    """Write the result: the facts of the query in the first line, then a row for each pair.

    CSV has the columns of an exported project: curators fill in `decision`, and `fewlink project import` reads it.
    """
    if out.suffix.lower() in JSON_LINES:
        lines = [json.dumps({"made_with": facts}, ensure_ascii=False)]
        lines += [json.dumps(row, ensure_ascii=False) for row in predictions.to_dicts()]
        finish(out, "".join(line + "\n" for line in lines))
    elif out.suffix.lower() == ".csv":
        relation = str(facts.get("relation") or facts.get("project") or "")
        finish(out, csv_text(undecided(row, relation) for row in predictions.rows))
    else:
        made_with = json_shown(json.dumps(facts, ensure_ascii=False))
        finish(out, f"{MADE_WITH}{made_with}\n{predictions.to_tsv()}")


def undecided(row: Prediction, relation: str) -> DecidedPair:
    """A predicted pair for a curator to decide."""
    return DecidedPair(
        head=row.head,
        head_name=row.head_name,
        relation=relation,
        tail=row.tail,
        tail_name=row.tail_name,
        decision="",
        probability=row.probability,
        who="",
        time="",
    )


def answer_batches(
    heads: Sequence[int],
    answer: Callable[[Sequence[int]], list[Row]],
    facts: Mapping[str, Any],
    out: Path | None = None,
    on_heads: Callable[[int], None] = lambda done: None,
    engine: Engine | None = None,
) -> Iterator[list[Row]]:
    """Yield the rows of each batch of heads, in their order; `answer` maps heads to rows.

    With `out`, batches are stored in a file beside it until `finish` is called, and stored batches are not computed
    again. `on_heads` is called with the number of heads whose batches are stored, then with the number of heads done
    after each batch. The workers of the `engine`, by default this process, compute the batches. Raises if `out` exists,
    or if the stored batches have other `facts`.
    """
    batches = batches_of(heads)
    found = {} if out is None else _begin(out, facts, len(batches))
    missing = [number for number in range(len(batches)) if number not in found]
    done = sum(len(batches[number]) for number in found)
    on_heads(done)

    def name(place: int) -> str:
        return batch_name(batches, missing[place])

    results = (engine or Engine()).run(answer, [batches[number] for number in missing], name)
    with contextlib.closing(results):
        for number in range(len(batches)):
            while number not in found:
                place, rows = next(results)
                if out is not None:
                    _append(unfinished(out), with_sha256({"batch": missing[place], "rows": rows}))
                found[missing[place]] = rows
                done += len(batches[missing[place]])
                on_heads(done)
            yield found.pop(number)


def unfinished(out: Path) -> Path:
    """The file with the batches of an unfinished completion."""
    return out.with_name(out.name + SUFFIX)


def finish(out: Path, text: str) -> None:
    """Write the file atomically and remove the batches."""
    write_bytes(out, text.encode())
    unfinished(out).unlink(missing_ok=True)


def check_out(out: Path) -> None:
    """Raise if the suffix is unknown, the file exists or its folder does not."""
    if out.suffix.lower() not in SUFFIXES:
        raise InputError(out, f"has an unknown suffix: use {', '.join(SUFFIXES)}")
    if os.path.exists(out):
        raise InputError(out, "exists already: remove it, or choose another file")
    if not os.path.isdir(out.parent):
        raise InputError(out, "cannot be written: its folder does not exist")


def _begin(out: Path, facts: Mapping[str, Any], count: int) -> dict[int, list[Row]]:
    """The batches, of `count`, that an interrupted run stored, by number; starts a file for them if there is none."""
    part = unfinished(out)
    first = {"format": FORMAT, **facts}
    check_out(out)
    if not part.exists():
        write_bytes(part, _line(first))
        return {}
    try:
        content = part.read_bytes()
    except OSError as error:
        raise InputError(part, f"cannot be read ({error.strerror})") from None
    whole = content[: content.rfind(b"\n") + 1]  # a killed run may leave an incomplete line
    lines = whole.splitlines()
    try:
        stored_facts = json.loads(lines[0]) if lines else None
        batches = dict(_batch(json.loads(line), place, part) for place, line in enumerate(lines[1:], 2))
    except (ValueError, RecursionError):
        raise InputError(part, f"is damaged: {REMEDY}") from None
    if stored_facts != json.loads(_line(first)):
        stored = stored_facts if isinstance(stored_facts, dict) else {}
        differing = [key for key in first if stored.get(key) != first[key]]
        raise InputError(
            part, f"was started with other options ({', '.join(differing)}): use the same options, or {REMEDY}"
        )
    if batches and max(batches) >= count:
        raise InputError(part, f"has a batch that is not part of this run: {REMEDY}")
    if len(whole) < len(content):
        with part.open("r+b") as file:
            file.truncate(len(whole))
    return batches


def _batch(stored: Any, line: int, part: Path) -> tuple[int, list[Row]]:
    """The number and rows of a stored batch; raises if its checksum is wrong."""
    content = without_sha256(stored, part, line, REMEDY)
    if not isinstance(content, dict) or type(content.get("batch")) is not int or type(content.get("rows")) is not list:
        raise InputError(part, f"has no batch here: {REMEDY}", line)
    return content["batch"], content["rows"]


def _append(part: Path, batch: Mapping[str, Any]) -> None:
    try:
        with part.open("ab") as file:
            file.write(_line(batch))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise FewlinkError(f"{part} cannot be written ({error.strerror})") from None


def _line(content: Any) -> bytes:
    return (json.dumps(content, ensure_ascii=False) + "\n").encode()
