"""Prediction over HTTP: an API with a schema, and a page for curators."""

from fewlink.server.schema import ServerSettings

__all__ = ["ServerSettings"]
