"""Predictions over HTTP: an API with an OpenAPI schema, and a page for curators."""

from fewlink.server.schema import ServerSettings

__all__ = ["ServerSettings"]
