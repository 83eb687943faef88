# fewlink serve in a container: not root, writes only to /data, torch for CPUs. About 1.2 GB.
#
#   docker build -t fewlink .
#   docker run --rm -p 8000:8000 -e FEWLINK_TOKEN=secret --read-only --tmpfs /tmp -v decisions:/data fewlink
#
# Then open http://127.0.0.1:8000; the page asks for the token. The volume stores the decisions of curators. To serve
# your own graph or a run:
#
#   docker run … -v "$PWD/graphs:/graphs:ro" fewlink /graphs/my-graph.tsv --names /graphs/names.tsv
#
# Arguments after the image's name go to `fewlink serve`. Put a proxy with TLS in front of it (SECURITY.md).

FROM python:3.11.14-slim-bookworm AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE constraints.txt requirements.lock ./
COPY src ./src
ENV PIP_CONSTRAINT=/source/constraints.txt PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
RUN python -m venv /opt/fewlink \
    && /opt/fewlink/bin/pip install --no-cache-dir --require-hashes -r requirements.lock \
    && /opt/fewlink/bin/pip install --no-cache-dir --no-deps . \
    && /opt/fewlink/bin/pip uninstall --yes pip

FROM python:3.11.14-slim-bookworm
LABEL org.opencontainers.image.title="fewlink" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/fewlink /opt/fewlink
RUN install --directory --owner=10001 --group=10001 /data
ENV PATH=/opt/fewlink/bin:$PATH HOME=/data PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["sh", "-c", ": \"${FEWLINK_TOKEN:?is not set: docker run -e FEWLINK_TOKEN=…}\" && exec fewlink serve --host 0.0.0.0 --port 8000 --project /data/decisions.db \"$@\"", "fewlink"]
CMD ["attack"]
