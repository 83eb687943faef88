"""The models by name: what the paper says each is made of, and that all of it is trained."""

from __future__ import annotations

import pytest
import torch
from tests.models.fsrl.oracle import ask, normal, parameters_of, random_surroundings
from tests.training.runs import umls

from fewlink.core.errors import UnknownName
from fewlink.models import trained_family
from fewlink.models.fsrl.compositions import COMPOSITIONS, build
from fewlink.models.fsrl.model import FewShotModel
from fewlink.models.fsrl.pair import FeedForward
from fewlink.models.fsrl.reference_variants import VARIANTS
from fewlink.models.fsrl.settings import FewShotSettings

PARTS_OF = ("encoder", "pair", "aggregator", "matcher")
every_model = pytest.mark.parametrize("name", COMPOSITIONS)


def differing(name: str, other: str) -> dict[str, str]:
    """The parts of a model whose kind is not that of another's."""
    models = build(name, 2), build(other, 2)
    kinds = {part: [type(getattr(m, part)).__name__ for m in models] for part in PARTS_OF}
    return {part: a for part, (a, b) in kinds.items() if a != b}


def test_parameters_by_hand() -> None:
    # d = 2, so pairs are 4 wide. Attentive: W 2·4, b 2, u 2. Autoencoder: two LSTMs of 4·4·(4 + 4) + 2·4·4 = 160,
    # W_R 2·4, b_R 2, u_R 2. Matching, the 4 units of 8 that are read: 4·4·(4 + 4 + 4) + 4·4 = 208.
    parts = {part: sum(p.numel() for p in getattr(build("fsrl", 2), part).parameters()) for part in PARTS_OF}
    assert parts == {"encoder": 12, "pair": 0, "aggregator": 332, "matcher": 208}


def test_parameters_of_the_authors_program_by_hand() -> None:
    # d = 2. Attention: W 2·4, b 2, u 2, c 1. Pairs: W₁ 8·4, b₁ 8, W₂ 4·8, b₂ 4, a 4, b 4. Two LSTMs, no attention.
    parts = {part: sum(p.numel() for p in getattr(build("fsrl-released", 2), part).parameters()) for part in PARTS_OF}
    assert parts == {"encoder": 13, "pair": 84, "aggregator": 320, "matcher": 208}


@pytest.mark.parametrize("name", ["gmatching-maxp", "gmatching-meanp", "gmatching-max", "fsrl"])
def test_the_pair_block_is_all_that_the_setting_adds(name: str) -> None:
    without, block = build(name, 2), build(name, 2, pair_block=True)
    assert isinstance(block.pair, FeedForward) and not isinstance(without.pair, FeedForward)
    added = block.state_dict().keys() - without.state_dict().keys()
    assert added == {f"pair.{weight}" for weight in block.pair.state_dict()}
    assert (
        trained_family(name).training_facts(umls(), FewShotSettings(model=name, pair_block=True))["pairs"]
        == "FeedForward"
    )


def test_fsrl_has_the_three_parts_of_the_paper_and_pairs_side_by_side() -> None:
    kinds = {part: type(getattr(build("fsrl", 2), part)).__name__ for part in PARTS_OF}
    assert kinds == {
        "encoder": "AttentiveNeighbours",
        "pair": "Concatenation",
        "aggregator": "RecurrentAutoencoder",
        "matcher": "RecurrentMatching",
    }


@pytest.mark.parametrize(
    ("name", "replaced"),
    [
        ("fsrl-as1", {"encoder": "MeanNeighbours"}),
        ("fsrl-as2a", {"aggregator": "MeanPooling"}),
        ("fsrl-as2b", {"aggregator": "RecurrentWithoutAttention"}),
        ("fsrl-as2c", {"aggregator": "RecurrentWithoutDecoder"}),
        ("fsrl-as3", {"matcher": "InnerProduct"}),
        ("fsrl-maml", {}),
        ("fsrl-anil", {}),
        ("fsrl-text", {"encoder": "NamedNeighbours"}),
        ("fsrl-tuned", {"encoder": "OwnAndNeighbours", "pair": "FeedForward"}),
        (
            "fsrl-released",
            {
                "encoder": "ReleasedNeighbours",
                "pair": "FeedForward",
                "aggregator": "ReleasedReferences",
                "matcher": "ZeroStartMatching",
            },
        ),
        ("gmatching-maxp", {"encoder": "ProjectedMean", "aggregator": "MaxPooling"}),
        ("gmatching-meanp", {"encoder": "ProjectedMean", "aggregator": "MeanPooling"}),
        ("gmatching-max", {"encoder": "ProjectedMean", "aggregator": "EveryReference"}),
    ],
)
def test_what_a_model_replaces_of_fsrl(name: str, replaced: dict[str, str]) -> None:
    assert differing(name, "fsrl") == replaced


def test_ablations_have_the_parameters_of_fsrl_but_for_what_they_remove() -> None:
    def names(name: str) -> set[str]:
        return set(build(name, 2).state_dict())

    whole = names("fsrl")
    assert names("fsrl-as1") == {n for n in whole if not n.startswith("encoder.")}
    assert names("fsrl-as2a") == {n for n in whole if not n.startswith("aggregator.")}
    assert names("fsrl-as2b") == {n for n in whole if not n.startswith("aggregator.attention.")}
    assert names("fsrl-as2c") == {n for n in whole if ".decoder." not in n}
    assert names("fsrl-as3") == {n for n in whole if not n.startswith("matcher.")}


def test_every_model_has_a_reference() -> None:
    assert VARIANTS.keys() == COMPOSITIONS.keys()


def run(model: FewShotModel, dim: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores and reconstruction of three references of entities with several neighbours."""
    s = random_surroundings(
        5, dim, 4, entities=12, names=model.encoder.own.in_features if model.encoder.reads_names else 0
    )
    draw = torch.Generator().manual_seed(0)
    references, queries = (torch.randint(12, (2, n, 2), generator=draw) for n in (3, 6))
    return ask(model, references, queries, s)


# What adds the same to every logit of a softmax, and so has no say and no gradient
CANCELS = {"encoder.attention.projection.bias", "encoder.u.bias", "aggregator.attention.projection.bias"}


@every_model
def test_every_parameter_is_trained(name: str) -> None:
    model = parameters_of(build(name, 3, names=2), 1)
    scores, reconstruction = run(model)
    assert scores.shape == (2, 6) and reconstruction.shape == (2,)
    ((scores * normal(9, 2, 6)).sum() + reconstruction.sum()).backward()
    untrained = {label for label, parameter in model.named_parameters() if parameter.grad is None}
    decoder = {f"aggregator.decoder.{kind}_{of}" for kind in ("weight", "bias") for of in ("ih", "hh")}
    assert untrained == (decoder if name == "fsrl-released" else set())  # the authors' decoder is detached
    for label, parameter in model.named_parameters():
        if label in CANCELS:
            assert parameter.grad.abs().max() < 1e-10, label
        elif label not in untrained:
            assert parameter.grad.abs().max() > 1e-8, label


@every_model
def test_only_an_autoencoder_reconstructs(name: str) -> None:
    _, reconstruction = run(parameters_of(build(name, 3), 1))
    decodes = any(".decoder." in label for label in build(name, 3).state_dict())
    assert bool((reconstruction > 0).all()) == bool((reconstruction != 0).any()) == decodes


@every_model
def test_fresh_models_score_moderately_and_by_the_seed(name: str) -> None:
    found = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        found.append(run(build(name, 3).double())[0])
    assert torch.equal(found[0], found[1])
    assert found[0].isfinite().all() and found[0].abs().max() < 50
    if list(build(name, 3).parameters()):
        assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize("name", [name for name in COMPOSITIONS if name != "fsrl-as3"])
def test_the_number_of_steps_reaches_the_matcher(name: str) -> None:
    assert [build(name, 2, steps=steps).matcher.steps for steps in (1, 5)] == [1, 5]
    assert build(name, 2).matcher.steps == 2


def test_an_unknown_model_names_the_choices() -> None:
    with pytest.raises(UnknownName, match="fsrl-as1"):
        build("fsrl-as11", 2)
