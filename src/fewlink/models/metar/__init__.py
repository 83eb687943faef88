"""MetaR: a relation's vector from its references, moved by one gradient step, and distances as in TransE."""
