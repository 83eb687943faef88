"""Small regular graphs: people live in towns of countries and speak the language of their country."""

from __future__ import annotations

from tests.conftest import graph_of

from fewlink.graph import Graph

COUNTRIES = 6
PEOPLE = 20  # in each country


def people(*more: str, without: str = "") -> Graph:
    """Everyone lives in one of two towns of a country and speaks its language; `more` triples, one of them left out."""
    rows = []
    for country in range(COUNTRIES):
        rows += [f"town{country}{town} in country{country}" for town in range(2)]
        rows.append(f"country{country} language lang{country}")
        for person in range(PEOPLE):
            name = f"person{country}x{person}"
            rows += [f"{name} lives town{country}{person % 2}", f"{name} speaks lang{country}", f"{name} is human"]
            rows.append(f"{name} likes hobby{person % 5}")
    return graph_of(*(row for row in (*rows, *more) if row != without))
