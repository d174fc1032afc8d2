# The controller. Payloads run on the machines of the matrix, so there is no torch in here.
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
RUN python -m pip install --no-cache-dir hatchling==1.33.0 build==1.6.1 \
    && python -m venv /opt/seatrial
COPY pyproject.toml constraints.txt README.md ./
COPY migrations migrations
COPY payload payload
COPY templates templates
COPY reports reports
COPY runners runners
COPY orchestrator orchestrator
RUN python -m build --wheel --no-isolation --outdir /wheels \
    && /opt/seatrial/bin/python -m pip install --no-cache-dir \
        --constraint constraints.txt "$(ls /wheels/*.whl)[aws,gcp,oidc,postgres,statistics]"

FROM python:3.11-slim-bookworm
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --system --gid 10001 seatrial \
    && useradd --system --uid 10001 --gid 10001 --no-log-init --create-home \
        --home-dir /var/lib/seatrial seatrial
COPY --from=build /opt/seatrial /opt/seatrial
ENV PATH=/opt/seatrial/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    SEATRIAL_HOME=/var/lib/seatrial
USER 10001:10001
WORKDIR /var/lib/seatrial
VOLUME /var/lib/seatrial
EXPOSE 8470
# By the socket of the home: the port may speak TLS, and have another number.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, httpx; home = httpx.HTTPTransport(uds=os.environ['SEATRIAL_HOME'] + '/controller.sock'); httpx.Client(transport=home, timeout=4).get('http://localhost/readyz').raise_for_status()"]
ENTRYPOINT ["seatrial"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8470"]
