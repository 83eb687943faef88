"""Trails: numbers by hand, and the finder against walks taken one edge at a time."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import graph_of, id_graph
from torch import Tensor

from fewlink.trail_0_1.paths import HOPS, Ends, PathFinder, Walks

Trail = tuple[int, ...]
Table = dict[tuple[Any, ...], float]  # the last part of a key is the way: 0 there, 1 back

ENTITIES, RELATIONS = 6, 3
ALONE = ENTITIES - 1  # no edge of the graphs below reaches it
EVERY = [trail for hops in range(1, HOPS + 1) for trail in itertools.product(range(2 * RELATIONS), repeat=hops)]
AWKWARD = [  # loops, edges both ways, several relations between the same two
    *((0, 0, 0), (0, 0, 1), (0, 1, 1), (1, 0, 0), (1, 1, 1), (1, 1, 0), (2, 0, 0), (2, 2, 2), (0, 2, 3), (3, 2, 0))
]

triples = st.lists(
    st.tuples(st.integers(0, ALONE - 1), st.integers(0, RELATIONS - 1), st.integers(0, ALONE - 1)),
    max_size=18,
    unique=True,
)
entity = st.integers(0, ENTITIES - 1)
some = st.lists(entity, min_size=1, max_size=4)
pairs = st.lists(st.tuples(entity, entity), min_size=1, max_size=4)
chosen = st.sets(entity, min_size=1)
trails = st.one_of(st.just(EVERY), st.lists(st.sampled_from(EVERY), max_size=12, unique=True))
leasts = st.sampled_from([math.pi / n for n in (300, 60, 25, 11, 7, 4)])  # no chance is one of these


class Literal:
    """A graph as a list of edges, inverse ones included, and the definition of a trail's chances as loops."""

    def __init__(self, triples: Sequence[tuple[int, int, int]], relations: int = RELATIONS) -> None:
        self.relations = relations
        self.edges = [*triples, *((t, r + relations, h) for h, r, t in triples)]
        self.count = Counter((h, r) for h, r, _ in self.edges)

    def inverse(self, relation: int) -> int:
        return relation - self.relations if relation >= self.relations else relation + self.relations

    def walks(self, head: int, hops: int) -> Iterator[tuple[Trail, int, float, float]]:
        """Each walk by itself: its trail, where it ends, its chance and that of the way back."""
        if not hops:
            yield (), head, 1.0, 1.0
            return
        for trail, at, there, back in self.walks(head, hops - 1):
            for h, r, t in self.edges:
                if h == at:
                    yield (*trail, r), t, there / self.count[h, r], back / self.count[t, self.inverse(r)]

    def joining(self, references: Sequence[tuple[int, int]], hops: int) -> Table:
        table: Table = defaultdict(float)
        for k, (head, tail) in enumerate(references):
            for length in range(1, hops + 1):
                for trail, end, there, back in self.walks(head, length):
                    if end == tail:
                        table[trail, k, 0] += there
                        table[trail, k, 1] += back
        return table

    def follow(
        self, heads: Sequence[int], rules: Iterable[Trail], candidates: Iterable[int], least: float = 0.0
    ) -> Table:
        """The same for each rule and candidate, of the walks that reach `least` by themselves."""
        table: Table = defaultdict(float)
        wanted, among = set(rules), set(candidates)
        for i, head in enumerate(heads):
            for length in range(1, HOPS + 1):
                for trail, end, there, back in self.walks(head, length):
                    if trail in wanted and end in among and max(there, back) >= least:
                        table[i, trail, end, 0] += there
                        table[i, trail, end, 1] += back
        return table

    def follow_together(
        self, heads: Sequence[int], rules: Iterable[Trail], candidates: Iterable[int], least: float
    ) -> Table:
        """The same, walks being left out as `follow` does it: an edge on from all that took one trail to one entity."""
        table: Table = {}
        for (i, head), rule in itertools.product(enumerate(heads), rules):
            standing = {head: (1.0, 1.0)}
            for relation in rule:
                further: dict[int, tuple[float, float]] = {}
                for h, r, t in self.edges:
                    if h in standing and r == relation:
                        there = standing[h][0] / self.count[h, r]
                        back = standing[h][1] / self.count[t, self.inverse(r)]
                        if there >= least or back >= least:
                            before = further.get(t, (0.0, 0.0))
                            further[t] = (before[0] + there, before[1] + back)
                standing = further
            for end in set(candidates) & standing.keys():
                table[i, rule, end, 0], table[i, rule, end, 1] = standing[end]
        return table


def near(expected: Table) -> Any:
    """The same keys, and chances as near as single precision is."""
    return pytest.approx(dict(expected), rel=1e-5, abs=0.0)


def ids(numbers: Iterable[int]) -> Tensor:
    return torch.tensor(list(numbers), dtype=torch.long)


def finder_of(triples: Sequence[tuple[int, int, int]]) -> PathFinder:
    return PathFinder(id_graph(triples, ENTITIES, RELATIONS))


def number(finder: PathFinder, trail: Trail) -> int:
    return sum((relation + 1) * finder.base**place for place, relation in enumerate(reversed(trail)))


def joined(finder: PathFinder, references: Sequence[tuple[int, int]], hops: int = HOPS) -> Table:
    """What `joining` finds, without its zeros."""
    found = finder.joining(ids(itertools.chain(*references)).view(-1, 2), hops)
    assert found.chances.shape == (len(found.paths), len(references), 2)
    assert (found.paths.diff() > 0).all() and (found.chances > 0).any(1).all()
    return {
        (finder.relations_of(trail), k, way): chance
        for trail, row in zip(found.paths.tolist(), found.chances.tolist(), strict=True)
        for k, both in enumerate(row)
        for way, chance in enumerate(both)
        if chance
    }


def followed(
    finder: PathFinder, heads: Sequence[int], rules: Iterable[Trail], candidates: Iterable[int], least: float = 0.0
) -> Table:
    """What `follow` finds, each end once."""
    numbers, among = sorted(number(finder, rule) for rule in rules), sorted(candidates)
    found = finder.arrived(finder.follow(ids(heads), ids(numbers), least), ids(among))
    table = {
        (head, finder.relations_of(numbers[rule]), among[candidate], way): both[way]
        for head, rule, candidate, both in zip(*(part.tolist() for part in found), strict=True)
        for way in (0, 1)
    }
    assert len(table) == 2 * len(found.heads)
    return table


def summed(finder: PathFinder, walks: Walks) -> Table:
    """The chances of walks, added up by owner, trail and entity; and how many there are of each."""
    table: Table = defaultdict(float)
    for owner, trail, at, both in zip(*(part.tolist() for part in walks), strict=True):
        for way, chance in enumerate((*both, 1)):
            table[owner, finder.relations_of(trail), at, way] += chance
    return table


def literal_sums(walks: Iterable[tuple[int, Trail, int, float, float]]) -> Table:
    table: Table = defaultdict(float)
    for owner, trail, at, there, back in walks:
        for way, chance in enumerate((there, back, 1)):
            table[owner, trail, at, way] += chance
    return table


A, B, C, D, E = range(5)
R, Q, P, R_BACK, Q_BACK, P_BACK = range(6)
GRAPH = graph_of("a r b", "a r c", "b q d", "c q d", "e q d", "a p d", "e p d")


def both_ways(expected: Mapping[Any, tuple[float, float]]) -> Any:
    return near({(*key, way): both[way] for key, both in expected.items() for way in (0, 1)})


def test_joining_by_hand() -> None:
    finder, one = PathFinder(GRAPH), {((P,), 0): (1, 1 / 2)}  # d has p⁻¹ to a and e
    assert joined(finder, [(A, D)], 1) == both_ways(one)
    two = {((R, Q), 0): (2 * 1 / 2, 2 * 1 / 3)}  # over b and c; of the three q⁻¹ of d, that to e leads no further
    assert joined(finder, [(A, D)], 2) == both_ways(one | two)
    three = {
        ((R, R_BACK, P), 0): (2 * 1 / 2, 2 * 1 / 2 * 1 / 2),  # a b a d, a c a d
        ((P, P_BACK, P), 0): (2 * 1 / 2, 2 * 1 / 2 * 1 / 2),  # a d a d, a d e d
        ((P, P_BACK, Q), 0): (1 / 2, 1 / 2 * 1 / 3),  # a d e d
        ((P, Q_BACK, P), 0): (1 / 3, 1 / 2 * 1 / 2),  # a d e d
        ((P, Q_BACK, Q), 0): (3 * 1 / 3, 3 * 1 / 2 * 1 / 3),  # a d b d, a d c d, a d e d
    }
    assert joined(finder, [(A, D)], 3) == both_ways(one | two | three)
    assert joined(finder, [(A, D)]) == joined(finder, [(A, D)], 3)


def test_joining_two_references_by_hand() -> None:
    finder = PathFinder(GRAPH)
    assert finder.base == 7
    found = finder.joining(ids([A, D, E, D, B, C]).view(3, 2), 1)
    assert found.paths.tolist() == [Q + 1, P + 1]
    expected = [[[0, 0], [1, 1 / 3], [0, 0]], [[1, 1 / 2], [1, 1 / 2], [0, 0]]]
    torch.testing.assert_close(found.chances, torch.tensor(expected))
    between = {
        ((R_BACK, R), 0): (1 / 2, 1 / 2),  # b a c
        ((Q, Q_BACK), 0): (1 / 3, 1 / 3),  # b d c
        ((R_BACK, P, Q_BACK), 0): (1 / 3, 1 / 2 * 1 / 2),  # b a d c
        ((Q, P_BACK, R), 0): (1 / 2 * 1 / 2, 1 / 3),  # b d a c
    }
    assert joined(finder, [(B, C)]) == both_ways(between)
    trails = finder.joining(ids([B, C]).view(1, 2)).paths.tolist()
    assert trails == sorted([4 * 7 + 1, 2 * 7 + 5, 4 * 49 + 3 * 7 + 5, 2 * 49 + 6 * 7 + 1])


def test_a_trail_is_one_number() -> None:
    finder = finder_of([])
    assert finder.relations_of(5 * 49 + 1 * 7 + 6) == (4, 0, 5)
    numbers = [number(finder, trail) for trail in EVERY]
    assert [finder.relations_of(each) for each in numbers] == EVERY and len(set(numbers)) == 6 + 6**2 + 6**3


def test_follow_by_hand() -> None:
    rules = [(P,), (R, Q), (P, Q_BACK), (R, Q, P_BACK), (Q, Q_BACK, R_BACK)]
    expected = {
        (0, (P,), D): (1, 1 / 2),
        (0, (R, Q), D): (1, 2 / 3),
        (0, (P, Q_BACK), C): (1 / 3, 1 / 2),
        (0, (P, Q_BACK), E): (1 / 3, 1 / 2),
        (0, (R, Q, P_BACK), A): (1 / 2, 2 / 3),
        (0, (R, Q, P_BACK), E): (1 / 2, 2 / 3),
        (1, (Q, Q_BACK, R_BACK), A): (2 * 1 / 3, 2 * 1 / 3 * 1 / 2),  # b d b a, b d c a; from e no r⁻¹ leads on
        (2, (P,), D): (1, 1 / 2),
        (2, (P, Q_BACK), C): (1 / 3, 1 / 2),
        (2, (P, Q_BACK), E): (1 / 3, 1 / 2),
        (2, (Q, Q_BACK, R_BACK), A): (2 * 1 / 3, 2 * 1 / 3 * 1 / 2),
    }
    assert followed(PathFinder(GRAPH), [A, B, E], rules, [A, C, D, E]) == both_ways(expected)


def test_ends_name_places_among_heads_rules_and_candidates() -> None:
    finder = PathFinder(GRAPH)
    found = finder.arrived(finder.follow(ids([B, A]), ids([P + 1, 8 * (P + 1)])), ids([A, D]))
    assert isinstance(found, Ends)
    assert [part.tolist() for part in found] == [[1], [0], [1], [[1.0, 0.5]]]


def test_a_loop_by_hand() -> None:
    finder = PathFinder(graph_of("a r a", "a r b"))  # b 1; r 0, its inverse 1
    assert joined(finder, [(0, 0)], 1) == both_ways({((0,), 0): (1 / 2, 1), ((1,), 0): (1, 1 / 2)})
    there_and_back = {
        ((0, 0), 0): (1 / 4, 1),
        ((0, 1), 0): (1 / 2 + 1 / 2, 1 / 2 + 1 / 2),  # over a and over b
        ((1, 0), 0): (1 / 2, 1 / 2),
        ((1, 1), 0): (1, 1 / 4),
    }
    two = joined(finder, [(0, 0)], 2)
    assert {key: chance for key, chance in two.items() if len(key[0]) == 2} == both_ways(there_and_back)


def test_what_is_least_by_hand() -> None:
    # Two walks, over b and over c, go from a to d; each has a chance of ½ both ways and of ¼ on to e.
    finder = PathFinder(graph_of("a r b", "a r c", "b q d", "c q d", "d p e", "d p f", "g p e"))
    rules, (d, e, f) = [(0,), (0, 1), (0, 1, 2)], (3, 4, 5)
    last = {(0, rules[2], e): (1 / 2, 1 / 2), (0, rules[2], f): (1 / 2, 1)}
    whole = {(0, rules[1], d): (1, 1), **last}
    first = {(0, rules[0], b): (1 / 2, 1) for b in (1, 2)}
    everywhere = range(7)
    assert followed(finder, [0], rules, everywhere) == both_ways(first | whole)
    for least in (0.3, 0.5):  # both walks have become one at d, and that leads to e with ½
        assert followed(finder, [0], rules, everywhere, least) == both_ways(first | whole)
    assert followed(finder, [0], rules, everywhere, 0.6) == both_ways(first)  # neither reaches d, though both would
    assert followed(finder, [0], rules, everywhere, 1.0) == both_ways(first)  # the way back is certain
    assert followed(finder, [0], rules, everywhere, 1.1) == {}


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_joining_is_its_definition_for_every_pair_of_an_awkward_graph(hops: int) -> None:
    references = [(head, tail) for head in range(ENTITIES) for tail in range(ENTITIES)]
    assert joined(finder_of(AWKWARD), references, hops) == near(Literal(AWKWARD).joining(references, hops))


def test_following_every_trail_of_an_awkward_graph_is_its_definition() -> None:
    everyone = range(ENTITIES)
    expected = Literal(AWKWARD).follow(everyone, EVERY, everyone)
    assert followed(finder_of(AWKWARD), everyone, EVERY, everyone) == near(expected)


@pytest.mark.parametrize("hops", [1, 2, 3])
@given(triples=triples, references=pairs)
def test_joining_is_its_definition(
    hops: int, triples: list[tuple[int, int, int]], references: list[tuple[int, int]]
) -> None:
    assert joined(finder_of(triples), references, hops) == near(Literal(triples).joining(references, hops))


@given(triples=triples, heads=some, rules=trails, candidates=chosen)
def test_follow_is_its_definition(
    triples: list[tuple[int, int, int]], heads: list[int], rules: list[Trail], candidates: set[int]
) -> None:
    expected = Literal(triples).follow(heads, rules, candidates)
    assert followed(finder_of(triples), heads, rules, candidates) == near(expected)


@given(triples=triples, references=pairs)
def test_rules_lead_from_a_references_head_to_its_tail(
    triples: list[tuple[int, int, int]], references: list[tuple[int, int]]
) -> None:
    finder = finder_of(triples)
    rules = joined(finder, references)
    for k, (head, tail) in enumerate(references):
        expected = {(0, trail, tail, way): chance for (trail, i, way), chance in rules.items() if i == k}
        assert followed(finder, [head], {trail for trail, _, _ in rules}, [tail]) == near(expected)


@given(triples=triples, references=pairs)
def test_a_turned_reference_is_joined_by_the_trails_turned(
    triples: list[tuple[int, int, int]], references: list[tuple[int, int]]
) -> None:
    finder, inverse = finder_of(triples), Literal(triples).inverse
    expected = {
        (tuple(inverse(relation) for relation in reversed(trail)), k, 1 - way): chance
        for (trail, k, way), chance in joined(finder, references).items()
    }
    assert joined(finder, [(tail, head) for head, tail in references]) == near(expected)


@given(triples=triples, heads=some, hops=st.integers(0, 2))
def test_onward_takes_every_edge(triples: list[tuple[int, int, int]], heads: list[int], hops: int) -> None:
    finder, literal = finder_of(triples), Literal(triples)
    walks = finder.start(ids(heads))
    for _ in range(hops):
        walks = finder.onward(walks)
    expected = literal_sums((i, *walk) for i, head in enumerate(heads) for walk in literal.walks(head, hops))
    if hops:
        assert summed(finder, walks) == near(expected)
    else:
        assert (walks.owners.tolist(), walks.entities.tolist()) == (list(range(len(heads))), heads)
        assert not walks.paths.any() and torch.equal(walks.chances, torch.ones(len(heads), 2))


@given(triples=triples, heads=some, among=trails, least=st.one_of(st.just(0.0), leasts))
def test_onward_takes_the_edges_that_make_a_trail_and_reach_the_least(
    triples: list[tuple[int, int, int]], heads: list[int], among: list[Trail], least: float
) -> None:
    finder, literal = finder_of(triples), Literal(triples)
    wanted = ids(sorted(number(finder, trail) for trail in among))
    found = finder.onward(finder.onward(finder.start(ids(heads))), wanted, least)
    expected = literal_sums(
        (i, trail, end, there, back)
        for i, head in enumerate(heads)
        for trail, end, there, back in literal.walks(head, 2)
        if trail in among and max(there, back) >= least
    )
    assert summed(finder, found) == near(expected)


@given(triples=triples.filter(bool))
def test_the_size_of_an_edges_bundle_is_how_many_edges_of_its_relation_its_head_has(
    triples: list[tuple[int, int, int]],
) -> None:
    graph, literal = id_graph(triples, ENTITIES, RELATIONS), Literal(triples)
    expected = [literal.count[e, r] for e, r in zip(graph.head_ids.tolist(), graph.relation_ids.tolist(), strict=True)]
    assert PathFinder(graph).group_sizes(torch.arange(len(expected))).tolist() == expected


@given(triples=triples, heads=some)
def test_siblings_are_reached_along_a_relation_and_back(triples: list[tuple[int, int, int]], heads: list[int]) -> None:
    finder, literal = finder_of(triples), Literal(triples)
    expected = literal_sums(
        (i, trail, end, there, back)
        for i, head in enumerate(heads)
        for trail, end, there, back in literal.walks(head, 2)
        if trail[1] == literal.inverse(trail[0])
    )
    assert summed(finder, finder.siblings(ids(heads))) == near(expected)


@given(triples=triples, heads=some, candidates=chosen)
def test_ends_add_up_all_walks_to_a_candidate(
    triples: list[tuple[int, int, int]], heads: list[int], candidates: set[int]
) -> None:
    finder, literal = finder_of(triples), Literal(triples)
    walks = finder.onward(finder.onward(finder.start(ids(heads))))
    expected = torch.zeros(len(heads), len(candidates), 2)
    for i, head in enumerate(heads):
        for _, end, there, back in literal.walks(head, 2):
            if end in candidates:
                expected[i, sorted(candidates).index(end)] += torch.tensor([there, back])
    torch.testing.assert_close(finder.ends(walks, len(heads), ids(sorted(candidates))), expected)


@given(triples=triples, heads=some, rules=trails, candidates=chosen, least=leasts)
def test_follow_leaves_out_what_is_less_than_least_at_a_hop(
    triples: list[tuple[int, int, int]], heads: list[int], rules: list[Trail], candidates: set[int], least: float
) -> None:
    finder, literal = finder_of(triples), Literal(triples)
    for at in (0.0, least):
        expected = literal.follow_together(heads, rules, candidates, at)
        assert followed(finder, heads, rules, candidates, at) == near(expected)


@given(triples=triples, heads=some, rules=trails, candidates=chosen, least=leasts, more=leasts)
def test_a_larger_least_finds_fewer_ends_with_smaller_chances(
    triples: list[tuple[int, int, int]],
    heads: list[int],
    rules: list[Trail],
    candidates: set[int],
    least: float,
    more: float,
) -> None:
    finder, slack = finder_of(triples), 1 + 1e-5
    everything = followed(finder, heads, rules, candidates)
    many, few = (followed(finder, heads, rules, candidates, at) for at in sorted((least, more)))
    assert few.keys() <= many.keys() <= everything.keys()
    assert all(few[key] <= many[key] * slack for key in few)
    assert all(many[key] <= everything[key] * slack for key in many)
    assert all(max(few[*end, 0], few[*end, 1]) >= max(least, more) / slack for *end, _ in few)
    by_themselves = Literal(triples).follow(heads, rules, candidates, max(least, more))
    assert all(few[key] * slack >= chance for key, chance in by_themselves.items())  # a likely walk is never lost


@given(triples=triples, heads=some, rules=trails, candidates=chosen, least=st.one_of(st.just(0.0), leasts))
def test_a_head_is_followed_alike_whichever_others_are(
    triples: list[tuple[int, int, int]], heads: list[int], rules: list[Trail], candidates: set[int], least: float
) -> None:
    finder = finder_of(triples)
    together = followed(finder, heads, rules, candidates, least)
    for i, head in enumerate(heads):
        own = {(0, *rest): chance for (of, *rest), chance in together.items() if of == i}
        assert followed(finder, [head], rules, candidates, least) == near(own)


@given(triples=triples, references=pairs)
def test_a_reference_is_joined_alike_whichever_others_are(
    triples: list[tuple[int, int, int]], references: list[tuple[int, int]]
) -> None:
    finder = finder_of(triples)
    together = joined(finder, [*references, references[0]])
    for k, reference in enumerate([*references, references[0]]):
        own = {(trail, 0, way): chance for (trail, of, way), chance in together.items() if of == k}
        assert joined(finder, [reference]) == near(own)


@pytest.mark.parametrize("edges", [[], AWKWARD])
def test_entities_without_edges_lead_nowhere(edges: list[tuple[int, int, int]]) -> None:
    finder = finder_of(edges)
    for pair in ((ALONE, 0), (0, ALONE), (ALONE, ALONE)):
        for hops in (1, 2, 3):
            found = finder.joining(ids(pair).view(1, 2), hops)
            assert (found.paths.shape, found.chances.shape) == ((0,), (0, 1, 2))
    assert followed(finder, [ALONE, 4], EVERY, range(ENTITIES)) == {}
    assert followed(finder, range(ENTITIES), EVERY, [ALONE]) == {}
    assert not len(finder.siblings(ids([ALONE])).owners)


@pytest.mark.parametrize("edges", [[], AWKWARD])
@pytest.mark.parametrize("least", [0.0, 0.1])
def test_no_rules_no_heads_and_no_candidates_have_no_ends(edges: list[tuple[int, int, int]], least: float) -> None:
    finder, everyone = finder_of(edges), range(ENTITIES)
    for heads, rules, candidates in (
        (everyone, [], everyone),
        ([ALONE], [], everyone),
        ([], EVERY, everyone),
        (everyone, EVERY, []),
    ):
        numbers = ids(sorted(number(finder, rule) for rule in rules))
        found = finder.arrived(finder.follow(ids(heads), numbers, least), ids(candidates))
        assert [tuple(part.shape) for part in found] == [(0,), (0,), (0,), (0, 2)]
        assert [part.dtype for part in found] == [torch.int64] * 3 + [torch.float32]


def test_no_references_have_no_rules() -> None:
    found = finder_of(AWKWARD).joining(torch.zeros(0, 2, dtype=torch.long))
    assert (found.paths.shape, found.chances.shape) == ((0,), (0, 0, 2))


def test_it_has_no_parameters_and_saves_nothing() -> None:
    finder = finder_of(AWKWARD)
    assert not list(finder.parameters()) and not finder.state_dict()
    assert {buffer.dtype for buffer in finder.double().buffers()} == {torch.int64}
