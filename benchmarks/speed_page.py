"""Writes docs/speed.md and its charts from the stored records."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import summary
from fewlink.studies.charts import LineChart, Point
from fewlink.studies.tables import Table
from summary import Records, Row

HOW = {  # how each record was measured
    "reading": "A file of triples with Zipf-like degrees is read by both libraries in new processes, in turn; "
    "the best of three, without imports.",
    "reading-large": "The same kind of file at Wiki-One's size, compiled to a folder; then opened by new processes.",
    "embeddings-speed": "ComplEx with 100 complex numbers, batch 1,024, one negative, on a random graph with as many "
    "triples and relations as NELL-One; both in one run, sampling included, after a warm-up.",
    "embeddings-memory": "ComplEx on a random graph of Wiki-One's size: the peak of a process that trains it.",
    "embeddings-quality": "FB15k-237, the same seconds of training for each; one evaluator ranks all of them.",
    "embeddings-gpu": "ComplEx one-vs-all on NELL-One to its best dev score, compared with the limits of the machine's "
    "products and copies.",
    "fewshot-speed-cpu": "FSRL compared with a literal transcription of the paper's equations with the same "
    "parameters; their scores are checked to be equal. They run in turn; figures are medians over the turns. The "
    "limits are those of the machine's products and copies.",
    "fewshot-speed-cuda": "The same on a GPU, with several seeds trained together. A step is one CUDA graph of "
    "dependent kernels. Each moves a few hundred kilobytes, which takes less time than launching it, so the step is "
    "far from the limits of memory and arithmetic; training several seeds together gives each kernel more work.",
    "fewshot-speed-wiki-cuda": "The same on a GPU and a generated benchmark of Wiki-One's size.",
    "explanations": "The drop of TRAIL's score for the best tail without the edges of the paths in its explanation, "
    "and without as many other edges on random paths between the same entities; with the relations' weights kept, and "
    "with everything read again from the smaller graph. `named lose more` is the share of comparisons.",
    "explanation-check": "Explanations with the built-in weights, and the faults that an independent check finds in "
    "them; the record has some as text. `no path in the graph`: no path joins head and tail.",
    "first-answer": "Seconds from a file of triples to the first ranked and explained answer with the built-in "
    "weights, and to later answers: NELL-One's known graph, and a generated graph of Wiki-One's size.",
    "fast-completion": "`complete --fast`: TRAIL's built-in weights reading all edges, or those near each head, on "
    "relations that are hidden with all but some of their pairs as references. The MRR of the other pairs' tails among "
    "those that resemble the references'; `same first` is the share of heads with the same first tail as with all "
    "edges. One thread.",
    "propagation-cpu": "TRAIL's message passing: sums of messages over all edges, reading references, answering "
    "questions. The bytes of a product are the state of each edge's source, its ids and constants, and each state "
    "written once; they are compared with a copy in the same run. Plain is one gather and one `index_add`. Medians "
    "over the turns.",
    "propagation-cuda": "The same on a GPU, where plain is torch without this project's kernels; and training steps, "
    "recorded as a CUDA graph, launched kernel by kernel, and with plain torch.",
    "serving": "Clients that send one request after another, each over its own connection; servers with and without "
    "batching run in turn, on the same machine as the clients.",
    "serving-shared": "Clients that send one request after another to a server that keeps answers: the same question, "
    "heads of one relation, relations with three references each, and all of these in turn; with the resident memory "
    "of the server, its mean and its maximum, in both halves of the time.",
    "stall": "One client tries to stall the server: small requests (three references, one head) and /health during a "
    "request with 200 references, 50 heads and all candidates, and while 1,000 sockets send a header or a body byte by "
    "byte. `late` is the delay with which the measuring process wakes up: a high load average means that other work "
    "kept the machine busy.",
    "stall-nell": "The same with version 0.2 on NELL-One's known graph.",
    "soak": "Version 0.2 under an hour of load: 50 clients request predictions, reasons, the next pairs of a project "
    "and entities, and decide pairs, while the server is killed and restarted and other work keeps the machine busy. "
    "The responses with status 500 or above are 503 with a retry time, in the first seconds after a restart.",
    "soak-short": "The same load on this version for eight minutes, with as many restarts. Other work kept the "
    "machine much busier, so do not compare its times with those of the hour.",
    "large-pretraining-cuda": "ComplEx with 50 reals, a pool of 1,024 negatives and Adagrad on a generated graph of "
    "Wiki-One's size: triples per second over whole epochs, compared with a limit at which a step is its three "
    "products at their measured speed and the fewest bytes at the rate of a copy; and the phases of a step that only "
    "move memory, compared with a copy. From 65,536 examples per step on, most of these phases exceed half the rate of "
    "a copy. Merging stays below it, because gradients of one row are added by atomic operations; so does gathering at "
    "65,536, because rows of 200 bytes at random places use only part of the sectors that are read. With 4,096 "
    "examples, a step consists of dependent kernels of a few microseconds and is far from the limit.",
    "large-pretraining-cpu": "The same on the CPU.",
    "large-models-cpu": "The stages of growth on a generated benchmark of Wiki-One's size and on NELL-One, in turn, "
    "each in its own process: the median of the turns. Both with random vectors of 50 reals.",
    "large-models-cuda": "The same on a GPU.",
}
MORE_TABLES = (  # of a record
    "whole test split, full",
    "against the limits",
    "kernels",
    "phases",
    "training",
    "questions",
    "steps",
    "checks",
)
CHARTED = {  # measures in the chart of time
    "compile a benchmark",
    "pretrain, an epoch",
    "FSRL, a step",
    "TRAIL, a step",
    "FSRL, a query ranked",
    "TRAIL, a query ranked",
    "FSRL, a new relation",
    "TRAIL, a new relation",
}


def page(records: Records) -> str:
    """The page in Markdown."""
    return f"""# Speed and memory

From `benchmarks/records/`, which `make bench` writes. Both sides of a ratio were
measured in one run on one machine.

## Ratios

{_table(summary.ratios(records))}
{_growth(records)}## Each benchmark

{_each(records)}"""


def pictures(records: Records) -> dict[str, str]:
    """SVG files by name: time and memory by the number of triples."""
    if "growth" not in records:
        return {}
    entries = records["growth"]["results"]["entries"]
    times = [m for m in summary.TIMES if m.name in CHARTED]
    memory = [m for m in summary.MEMORY if m.key == "peak GB"]
    scale = {"s": 1.0, "ms": 0.001, "GB": 1.0}
    charts = {
        "growth.svg": ("Time by the size of the graph", "seconds", times),
        "growth-memory.svg": ("Memory by the size of the graph", "peak GB of a process", memory),
    }
    pictures = {}
    for name, (title, unit, measures) in charts.items():
        series = {m.name: [Point(x, y * scale[m.unit], 0.0) for x, y in summary.points(entries, m)] for m in measures}
        pictures[name] = LineChart(title, series, "triples", unit, logarithmic=True).svg()
    return pictures


def _growth(records: Records) -> str:
    if "growth" not in records:
        return ""
    record = records["growth"]
    about, entries = record["results"], record["results"]["entries"]
    steep = [*summary.too_steep(entries, summary.TIMES), *summary.too_steep(entries, summary.MEMORY)]
    verdict = f"Above {summary.ALLOWED}: {', '.join(steep)}." if steep else f"None is above {summary.ALLOWED}."
    method = (
        "Generated graphs of Wiki-One's shape; the columns are their numbers of entities, with 1.21 triples for each. "
        "Every stage runs in its own process (the best of three if it takes seconds), without imports, with "
        f"{_counted(about['threads'], 'thread')} on {_counted(record['cores'], 'core')}. Vectors have {about['dim']} "
        "reals and are random except in pretraining. A query is ranked among all candidates of its relation, and a "
        "prediction scores one head against the entities similar to the references' tails: both have more candidates "
        "in a larger graph. "
        "`exponent` is the slope of log time against log triples over all sizes, `at the end` the slope between the "
        f"two largest, where constant costs matter least. {verdict}"
    )
    return f"""## Growth

{textwrap.fill(method, 120)}

![time by triples](pictures/growth.svg)

{_table(summary.growth(entries, summary.TIMES))}
Peak memory of each process, and the resident memory of one that predicts, imports included:

![memory by triples](pictures/growth-memory.svg)

{_table(summary.growth(entries, summary.MEMORY))}
"""


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _each(records: Records) -> str:
    sections = []
    for name, record in records.items():
        rows = record["results"].get("rows", [])
        if not rows or name == "growth":
            continue
        peak = record["results"].get("peak_bytes")
        memory = f", peak memory {peak / 2**30:.2f} GiB" if peak else ""
        method = textwrap.fill(f"{HOW.get(name, '')} {record['date']}, {_machine(record)}{memory}.".strip(), 120)
        sections.append(f"### {name}\n\n{method}\n\n{_table(rows)}")
        for title in MORE_TABLES:
            more = record["results"].get(title)
            if more:
                sections.append(f"{title}:\n\n{_table(more if isinstance(more, list) else [more])}")
    return "\n".join(sections)


def _machine(record: Mapping[str, Any]) -> str:
    known = record["results"].get("hardware") or record["results"].get("device")
    return known if isinstance(known, str) and known not in ("cpu", "cuda") else f"{record['cores']} cores"


def _table(rows: Sequence[Row]) -> str:
    return Table("", list(rows[0]), [_cells(row.values()) for row in rows]).markdown() if rows else ""


def _cells(values: Iterable[Any]) -> list[str]:
    return [_cell(value) for value in values]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
