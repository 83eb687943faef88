from pathlib import Path

import pytest

from fewlink.core.errors import InputError, UnknownName
from fewlink.core.recipes import model_of, recipe, recipe_texts
from fewlink.core.settings import Settings
from fewlink.models import family_of
from fewlink.models.embeddings import INTERACTIONS, EmbeddingSettings


def test_every_shipped_recipe_is_valid_and_says_how_it_was_chosen() -> None:
    for name in recipe_texts():
        kind: type[Settings] = family_of(model_of(name)).settings
        shipped = recipe(name, kind)
        assert shipped.about and shipped.chosen
        assert recipe(shipped.vectors.recipe, EmbeddingSettings)
    assert {*INTERACTIONS, "fsrl-released", "fsrl-tuned"} <= set(recipe_texts())


def test_a_recipe_of_ones_own_is_read(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('about = "mine"\n[settings]\nmodel = "transe"\nepochs = 7\n')
    read = recipe(str(tmp_path / "mine.toml"), EmbeddingSettings)
    assert (read.name, read.about, read.settings.epochs) == ("mine", "mine", 7)
    assert model_of(str(tmp_path / "mine.toml")) == "transe"


def test_a_bad_recipe_names_the_file_or_the_choices(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="complx"):
        recipe("complx", EmbeddingSettings)
    with pytest.raises(InputError, match="none"):
        recipe(str(tmp_path / "none.toml"), EmbeddingSettings)
    for text, named in (
        ("about = 1 2", "bad.toml"),
        ("about = 'x'", "settings"),
        ("abot = 'x'\n[settings]", "abot"),
        ("about = 1\n[settings]", "about"),
        ("[settings]\nepochs = 0", "epochs"),
        ("[settings]\nepoch = 3", "epoch"),
        ("[settings]\n[vectors]\nset = [1]", "set"),
        ("[settings]\n[vectors]\ndim = 3", "dim"),
    ):
        (tmp_path / "bad.toml").write_text(text)
        with pytest.raises(InputError, match=named) as raised:
            recipe(str(tmp_path / "bad.toml"), EmbeddingSettings)
        assert raised.value.path.name == "bad.toml"
