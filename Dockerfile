# Pinned by digest: the same bytes whoever builds. After `docker pull python:3.11-slim`, `docker images --digests` shows a
# newer one, with the fixes of its packages.
ARG PYTHON_IMAGE=python:3.11-slim@sha256:9c900dea9e8fb7e16277c179b555cc72d29a352dbc33cff48ad5a0412fd5bfc7

# Wheels are built and installed here, once, from what the locks name by hash; nothing is fetched in the second stage.
FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
COPY configs/build.lock configs/requirements.lock ./
RUN pip install --no-cache-dir --require-hashes -r build.lock \
    && pip wheel --no-cache-dir --no-build-isolation --require-hashes --wheel-dir /wheels -r requirements.lock
COPY pyproject.toml README.md ./
COPY raftsched ./raftsched
RUN pip wheel --no-cache-dir --no-build-isolation --no-deps --wheel-dir /wheels . \
    && pip install --no-index --no-deps --no-compile --prefix /install /wheels/*.whl

FROM ${PYTHON_IMAGE}
COPY --from=build /install /usr/local
# The base image ships the standard library without bytecode, and the user below can't write any: without this step every
# process, each health check among them, would compile all that it imports. Time stamps don't count, sources don't change.
RUN python -m compileall -q -j 0 --invalidation-mode unchecked-hash -x '/(tests?|lib2to3)/' /usr/local/lib/python3.11 \
    && groupadd --gid 10001 raftsched \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/raftsched raftsched \
    && install -d -o raftsched -g raftsched -m 700 /var/lib/raftsched
COPY configs/cluster.toml /etc/raftsched/
# A number, since Kubernetes can't tell whether a name is root (`runAsNonRoot`).
USER 10001:10001
VOLUME /var/lib/raftsched
EXPOSE 8400 8401
STOPSIGNAL SIGTERM
# For nodes; in the container of a worker, or of any other command, it finds no node and has nothing to check.
HEALTHCHECK --start-period=60s --interval=10s --timeout=5s --retries=3 CMD ["raftsched", "healthcheck"]
# The first process of the container is raftsched itself: it forwards signals and reaps orphans.
ENTRYPOINT ["raftsched"]
CMD ["node", "--config", "/etc/raftsched/cluster.toml"]
# Last, because they change with every commit.
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="raftsched" \
    org.opencontainers.image.description="A job scheduler that is one small Raft cluster and nothing else." \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"
