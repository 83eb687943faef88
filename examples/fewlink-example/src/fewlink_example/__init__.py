"""A scorer and a family of models that fewlink finds through entry points."""
