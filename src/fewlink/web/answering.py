"""Parts that go together answered by one call of a linker, and whole requests put together from their parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

from fewlink.prediction import Explanation, Linker, Prediction
from fewlink.prediction.query import nothing_left
from fewlink.web.asking import Ranking, Resolver, Why
from fewlink.web.batching import Batcher
from fewlink.web.schema import ExplainRequest, PredictRequest
from fewlink.web.settings import Settings

Part = Ranking | Why
Found = tuple[Sequence[Prediction], Sequence[str]]  # rows and notes
Answer = Found | Explanation | Exception
Member = tuple[int, Part]  # a part, and its place among those of a turn


class Answers:
    """Answers the parts of a turn; used by one thread at a time."""

    def __init__(self, linker: Linker, settings: Settings) -> None:
        self.linker, self.settings = linker, settings
        self.calls = 0  # of the linker, to see what batching saves

    def turn(
        self, parts: Sequence[Part], wanted: Callable[[int], bool] = lambda place: True
    ) -> Iterator[tuple[int, Answer]]:
        """The place of each part with its answer, or an error; `wanted` says whether somebody still waits for it."""
        groups: dict[Hashable, list[Member]] = {}
        for place, part in enumerate(parts):
            groups.setdefault(key_of(part), []).append((place, part))
        for group in groups.values():
            for members in self._calls(group):
                waiting = [member for member in members if wanted(member[0])]
                answers: Sequence[Answer]
                try:
                    answers = list(self._call([part for _, part in waiting])) if waiting else []
                except Exception as error:  # each who asked is told; the thread goes on
                    answers = [error] * len(waiting)
                yield from zip((place for place, _ in waiting), answers, strict=True)

    def _calls(self, members: Sequence[Member]) -> Iterator[list[Member]]:
        """Members for one call each: all their heads times the largest k are no more rows than a request may have."""
        call: list[Member] = []
        heads, k = 0, 0
        for member in members:
            part = member[1]
            count, own = (len(part.heads), part.k) if isinstance(part, Ranking) else (1, 1)
            if call and (heads + count) * max(k, own) > self.settings.rows:
                yield call
                call, heads, k = [], 0, 0
            call.append(member)
            heads, k = heads + count, max(k, own)
        yield call

    def _call(self, parts: Sequence[Part]) -> Iterable[Answer]:
        self.calls += 1
        first = parts[0]
        if isinstance(first, Why):
            relation = first.given.relation
            return [self.linker.explain(first.given.references, first.head, first.tail, relation=relation)] * len(parts)
        return self._ranked([part for part in parts if isinstance(part, Ranking)])

    def _ranked(self, parts: Sequence[Ranking]) -> Iterable[Answer]:
        """One call for the heads of all and the largest k, of which each gets its own heads and its own k."""
        first, names = parts[0], self.linker.names
        union = tuple(dict.fromkeys(head for part in parts for head in part.heads))
        found = (self.linker.who_fits if first.pairs else self.linker.predict)(
            first.given.references,
            union,
            max(part.k for part in parts),
            candidates=first.candidates,
            exclude_known=first.exclude_known,
            relation=first.given.relation,
        )
        if first.pairs:
            return [(found[: part.k], found.notes) for part in parts]
        rows: dict[str, list[Prediction]] = {head: [] for head in union}
        for row in found:
            rows[row.head].append(row)
        empty = {head: nothing_left(names, names.find(head)) for head in union if not rows[head]}
        shared = [note for note in found.notes if note not in empty.values()]
        return [
            (
                [row for head in part.heads for row in rows[head][: part.k]],
                [*shared, *(empty[head] for head in part.heads if head in empty)],
            )
            for part in parts
        ]


def key_of(part: Part) -> Hashable:
    """What parts must have in common to be answered by one call."""
    if isinstance(part, Why):
        return part
    return (part.given, part.candidates, part.exclude_known, part.heads if part.pairs else None)


class Requests:
    """Whole requests: resolved, asked part by part, so that a long one lets others pass, and put together."""

    def __init__(self, linker: Linker, settings: Settings, batcher: Batcher[Part, Answer]) -> None:
        self.linker, self.batcher, self.resolver = linker, batcher, Resolver(linker, settings)

    async def predict(self, asked: PredictRequest) -> dict[str, Any]:
        resolved = await asyncio.to_thread(self.resolver.ranking, asked)
        rows: list[Prediction] = []
        notes: dict[str, None] = {}
        for part in resolved.part.turns():
            more, said = await self._found(part)
            rows += more
            notes.update(dict.fromkeys(said))
            if part.pairs:
                rows = self._best(rows)[: part.k]
        told = [row.to_dict() for row in rows]
        for row in told if asked.explain else ():
            reasons = await self._explanation(Why(resolved.part.given, row["head"], row["tail"]))
            row["reasons"] = reasons.to_dict()
        return {"predictions": told, "notes": [*resolved.notes, *notes]}

    async def explain(self, asked: ExplainRequest) -> dict[str, Any]:
        return (await self._explanation(await asyncio.to_thread(self.resolver.why, asked))).to_dict()

    async def _found(self, part: Ranking) -> Found:
        answer = await self.batcher.ask(part)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, tuple)
        return answer

    async def _explanation(self, part: Why) -> Explanation:
        answer = await self.batcher.ask(part)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Explanation)
        return answer

    def _best(self, rows: list[Prediction]) -> list[Prediction]:
        """Pairs in the order of `Linker.who_fits`."""
        entities = self.linker.graph.entities

        def place(row: Prediction) -> tuple[float, float, int, int]:
            worth = row.score if row.probability is None else row.probability
            return -worth, -row.score, entities.find(row.head) or 0, entities.find(row.tail) or 0

        return sorted(rows, key=place)
