"""GANA: encodes references with their neighbours and improves a relation's vector and hyperplane in a gradient step."""
