# docker build -t REGISTRY/longhorn-scheduler-extender:TAG .
FROM python:3.12-slim AS build

WORKDIR /src
COPY requirements/runtime.lock requirements/runtime.lock
# Wheels only, and only those whose digest is in the lock: no compiler, no surprise.
RUN python -m venv /app && \
    /app/bin/pip install --no-cache-dir --only-binary :all: --require-hashes -r requirements/runtime.lock
# The build backend stays out of the image.
COPY requirements/build.lock requirements/build.lock
RUN python -m venv /build && \
    /build/bin/pip install --no-cache-dir --only-binary :all: --require-hashes -r requirements/build.lock
COPY pyproject.toml README.md LICENSE ./
COPY controller controller
COPY extender extender
COPY webhook webhook
COPY certs certs
RUN /build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels . && \
    /app/bin/pip install --no-cache-dir --no-deps --no-index /wheels/*.whl

FROM python:3.12-slim

COPY --from=build /app /app
# Runs with any uid and a read-only root file system; gunicorn's heartbeat file lies in /dev/shm.
ENV PATH=/app/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
EXPOSE 9443 9504 9505 9506
ENTRYPOINT ["longhorn-scheduler-extender"]
CMD ["run"]
