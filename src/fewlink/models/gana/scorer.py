"""A trained GANA as a scorer."""

from __future__ import annotations

from torch import Tensor

from fewlink.models.gana.model import GANA, project
from fewlink.models.metar.scorer import MetaScorer
from fewlink.scorers import Question


class GANAScorer(MetaScorer[GANA]):
    """−‖h⊥ + R' − t⊥‖, v⊥ being the projection of v on the hyperplane with the normal w'."""

    def points(self, question: Question) -> tuple[Tensor, Tensor]:
        references = question.references
        ids = (self.ids(part).unsqueeze(0) for part in (references, self.false_tails(references)))
        relation, normal = (part[0].double() for part in self.model.relation(*ids))
        heads, tails = (project(self.vectors(part).double(), normal) for part in (question.heads, question.candidates))
        return heads + relation, tails
