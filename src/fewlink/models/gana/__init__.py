"""GANA: references are read with their neighbours, and a relation's vector and hyperplane take one gradient step."""
