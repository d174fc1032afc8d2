# The controller. Payloads run on the machines of the matrix, so there is no torch in here.
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN python -m pip install --no-cache-dir hatchling==1.33.0 build==1.6.1 \
    && python -m build --wheel --no-isolation --outdir /wheels \
    && cp constraints.txt /wheels/

FROM python:3.11-slim-bookworm
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --create-home --home-dir /var/lib/seatrial seatrial
COPY --from=build /wheels /wheels
RUN python -m pip install --no-cache-dir --constraint /wheels/constraints.txt /wheels/*.whl \
    && rm -rf /wheels
USER seatrial
ENV SEATRIAL_HOME=/var/lib/seatrial PYTHONUNBUFFERED=1
VOLUME /var/lib/seatrial
EXPOSE 8470
ENTRYPOINT ["seatrial"]
CMD ["serve", "--host", "0.0.0.0"]
