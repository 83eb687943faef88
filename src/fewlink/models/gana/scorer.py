"""A trained GANA as a scorer."""

from __future__ import annotations

from torch import Tensor

from fewlink.models.contract import Question
from fewlink.models.gana.model import GANA, project
from fewlink.models.metar.scorer import MetaScorer


class GANAScorer(MetaScorer[GANA]):
    """−‖h⊥ + R' − t⊥‖, where v⊥ is the projection of v onto the hyperplane with the normal w'."""

    def points(self, question: Question) -> tuple[Tensor, Tensor]:
        references = self.ids(question.references).unsqueeze(0)
        false_tails = self.ids(self.false_tails(question.references)).unsqueeze(0)
        relations, normals = self.model.relation(references, false_tails)
        relation = relations[0].double()
        normal = normals[0].double()
        heads = project(self.vectors(question.heads).double(), normal)
        tails = project(self.vectors(question.candidates).double(), normal)
        return heads + relation, tails
