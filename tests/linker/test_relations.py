"""Which relation holds between two entities: the true one comes first though its triple is hidden."""

from __future__ import annotations

from tests.linker.graphs import people

from fewlink.linker.relations import RelationFinder


def test_the_relation_of_a_hidden_triple_comes_first() -> None:
    graph = people(without="person1x4 speaks lang1")
    finder = RelationFinder(graph)
    fits = finder.rank(graph.entities.id("person1x4"), graph.entities.id("lang1"))
    assert graph.relations[fits[0].relation] == "speaks" and not fits[0].known and fits[0].fit > 0.5
    assert fits[0].fit > 5 * fits[1].fit


def test_a_triple_of_the_graph_is_marked_and_fits_no_better_for_being_there() -> None:
    hidden, whole = people(without="person1x4 speaks lang1"), people()
    fits = []
    for graph in (hidden, whole):
        best = RelationFinder(graph).rank(graph.entities.id("person1x4"), graph.entities.id("lang1"))[0]
        assert graph.relations[best.relation] == "speaks"
        fits.append(best)
    assert fits[1].known and abs(fits[0].fit - fits[1].fit) < 0.05


def test_a_wrong_triple_is_no_evidence_for_itself() -> None:
    """Nobody else speaks a lone language: its own edge would say that this is the kind of tail the relation has."""
    graph = people("person1x4 speaks lone", "lone is human")
    head, tail, speaks = (graph.entities.id("person1x4"), graph.entities.id("lone"), graph.relations.id("speaks"))
    finder = RelationFinder(graph)
    assert finder._fit(speaks, head, tail, known=True) < finder._fit(speaks, head, tail, known=False)


def test_a_relation_of_one_triple_is_shown_as_known() -> None:
    graph = people("person1x4 admires person2x3")
    fits = RelationFinder(graph).rank(graph.entities.id("person1x4"), graph.entities.id("person2x3"))
    [admires] = [fit for fit in fits if graph.relations[fit.relation] == "admires"]
    assert admires.known and admires.fit == 0
