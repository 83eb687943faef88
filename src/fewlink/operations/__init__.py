"""Running a server: what requests cost, whose turn it is, which connections stay open, metrics and log lines.

Nothing here knows the web framework, except that `protocol` is for uvicorn.
"""
