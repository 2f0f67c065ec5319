FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml README.md ./
COPY raftsched ./raftsched
RUN pip install --no-cache-dir --prefix /install .

FROM python:3.11-slim
COPY --from=build /install /usr/local
COPY configs /etc/raftsched
RUN useradd --system --home /var/lib/raftsched raftsched \
    && install -d -o raftsched -g raftsched -m 700 /var/lib/raftsched
USER raftsched
VOLUME /var/lib/raftsched
EXPOSE 8400 8401
HEALTHCHECK --interval=5s --timeout=2s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8400/healthz', timeout=1)"]
ENTRYPOINT ["raftsched"]
CMD ["node", "--config", "/etc/raftsched/cluster.toml"]
