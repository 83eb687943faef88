"""Models: the contract of a family, the registry, and one package for each family."""
