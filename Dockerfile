FROM python:3.11-slim AS build
WORKDIR /src
COPY configs/requirements.lock ./
RUN pip install --no-cache-dir --no-compile --prefix /install --require-hashes -r requirements.lock
COPY pyproject.toml README.md ./
COPY raftsched ./raftsched
RUN pip install --no-cache-dir --no-compile --prefix /install --no-deps .

FROM python:3.11-slim
COPY --from=build /install /usr/local
COPY configs /etc/raftsched
# The base image ships the standard library without bytecode, and the user below can't write any: without this step every
# process, each health check among them, would compile all that it imports. Time stamps don't count, sources don't change.
RUN python -m compileall -q -j 0 --invalidation-mode unchecked-hash -x '/(tests?|lib2to3)/' /usr/local/lib/python3.11 \
    && useradd --system --home /var/lib/raftsched raftsched \
    && install -d -o raftsched -g raftsched -m 700 /var/lib/raftsched
USER raftsched
VOLUME /var/lib/raftsched
EXPOSE 8400 8401
# For nodes; in the container of a worker, or of any other command, it finds no node and has nothing to check.
HEALTHCHECK --start-period=60s --interval=10s --timeout=5s --retries=3 CMD ["raftsched", "healthcheck"]
ENTRYPOINT ["raftsched"]
CMD ["node", "--config", "/etc/raftsched/cluster.toml"]
