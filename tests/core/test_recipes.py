from pathlib import Path

import pytest

from fewlink.core.errors import FewlinkError, InputError, UnknownName
from fewlink.core.recipes import as_toml, current_name, former_name, model_of, recipe, recipe_texts
from fewlink.core.settings import Settings
from fewlink.embeddings import INTERACTIONS, EmbeddingSettings
from fewlink.models import family_of


def test_every_shipped_recipe_is_valid_and_says_how_it_was_chosen() -> None:
    for name in recipe_texts():
        kind: type[Settings] = family_of(model_of(name)).settings
        shipped = recipe(name, kind)
        assert shipped.about and shipped.chosen
        assert recipe(shipped.vectors.recipe, EmbeddingSettings)
    assert {*INTERACTIONS, "fsrl-released", "fsrl-tuned"} <= set(recipe_texts())


def test_a_written_recipe_is_read_back(tmp_path: Path) -> None:
    settings = EmbeddingSettings(model="transe", n3=0.0, epochs=7, schedule="linear", learning_rate=0.123)
    path = tmp_path / "mine.toml"
    path.write_text(as_toml('about "it"', "by hand", settings))
    read = recipe(str(path), EmbeddingSettings)
    assert read.settings == settings
    assert (read.name, read.about, read.chosen) == ("mine", 'about "it"', "by hand")


def test_changes_are_parsed_as_the_type_of_their_setting() -> None:
    changed = EmbeddingSettings().adjusted(["epochs=3", "n3=0.5", "model=distmult", "mixed_precision=false"])
    assert (changed.epochs, changed.n3, changed.model) == (3, 0.5, "distmult")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("epochs", "name=value"),
        ("epochs=x", "type int"),
        ("epoch=3", "did you mean 'epochs'"),
        ("epochs=0", "at least 1"),
    ],
)
def test_a_bad_change_says_what_is_wrong(change: str, message: str) -> None:
    with pytest.raises(FewlinkError, match=message):
        EmbeddingSettings().adjusted([change])


def test_a_bad_recipe_names_the_file_or_the_choices(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean 'complex'"):
        recipe("complx", EmbeddingSettings)
    with pytest.raises(InputError, match="cannot be read"):
        recipe(str(tmp_path / "none.toml"), EmbeddingSettings)
    for text, message in (
        ("about = 1 2", "is not TOML"),
        ("about = 'x'", "has no table"),
        ("[settings]\n[vectors]\nset = [1]", r"vectors.set is \[1\]: it must be a list of texts"),
    ):
        (tmp_path / "bad.toml").write_text(text)
        with pytest.raises(InputError, match=message):
            recipe(str(tmp_path / "bad.toml"), EmbeddingSettings)


@pytest.mark.parametrize(
    ("model", "settings", "name"),
    [
        ("trail", {"views": 3}, "trail-0.1"),
        ("trail-no-profile", {"views": 3}, "trail-0.1-no-profile"),
        ("trail-no-trails", {"views": 3}, "trail-0.1-no-paths"),
        ("trail-no-trails", {}, "trail-0.1-no-paths"),
        ("trail", None, "trail-0.1"),
        ("trail", {"layers": 5}, "trail"),
        ("trail-no-profile", {"layers": 5}, "trail-no-profile"),
        ("trail-0.1-no-paths", {"views": 3}, "trail-0.1-no-paths"),
        ("trailing", {"views": 3}, "trailing"),
        ("fsrl", None, "fsrl"),
    ],
)
def test_a_stored_model_has_the_name_it_has_since(model: str, settings: dict[str, int] | None, name: str) -> None:
    assert current_name(model, settings) == name


def test_the_former_name_is_that_of_version_0_1() -> None:
    names = ["trail-0.1", "trail-0.1-no-paths", "trail", "fsrl"]
    assert [former_name(name) for name in names] == ["trail", "trail-no-paths", "trail", "fsrl"]
