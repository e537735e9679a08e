# make image IMAGE=registry.example.com/team/longhorn-scheduler-extender:TAG
#
# Weighed: distroless has neither shell nor pip, but its Python is the one of its Debian, at a path of its own, so that the
# environment of any other build stage breaks there; and it has no tags for versions. python:slim is one image for both.
#
# By the digest of the list for all architectures, since a tag can be moved. `docker buildx imagetools inspect` says that
# of a newer one. Another registry: --build-arg PYTHON_IMAGE=mirror.example.com/python:3.12.13-slim-trixie@sha256:...
ARG PYTHON_IMAGE=python:3.12.13-slim-trixie@sha256:229a2c5bfa27522db7815ea81f9bed70af17ccb9de9fc7ad142b1877b5830d36

FROM ${PYTHON_IMAGE} AS build

# Where pip asks, if not at its own default. It says nothing about what is installed: the digests in the locks do.
ARG PIP_INDEX_URL
WORKDIR /src
COPY requirements/runtime.lock requirements/build.lock requirements/
# Of the scripts, only the product's own stay. Wheels only, and only those whose digest is in a lock: no compiler, no surprise. pip and the build backend stay here.
RUN python -m venv /build && \
    /build/bin/pip install --no-cache-dir --only-binary :all: --require-hashes -r requirements/build.lock && \
    python -m venv --without-pip /app && \
    /build/bin/pip --python /app/bin/python install \
        --no-cache-dir --only-binary :all: --require-hashes -r requirements/runtime.lock
COPY pyproject.toml README.md LICENSE ./
COPY controller controller
COPY extender extender
COPY webhook webhook
COPY certs certs
RUN /build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels . && \
    /build/bin/pip --python /app/bin/python install --no-cache-dir --no-deps --no-index /wheels/*.whl && \
    find /app/bin -type f ! -name 'longhorn-*' -delete

FROM ${PYTHON_IMAGE}

COPY --from=build /app /app
# Runs with any uid and a read-only root file system; gunicorn's heartbeat file lies in /dev/shm.
ENV PATH=/app/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
# Leader and webhook; a manifest's command takes the place of the first.
EXPOSE 9443 9504 9505 9506 9508
ENTRYPOINT ["longhorn-scheduler-extender"]
CMD ["run"]

# Last, since they differ in every build.
ARG PYTHON_IMAGE
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="longhorn-scheduler-extender" \
    org.opencontainers.image.description="Lets kube-scheduler choose only nodes that have room for a pod's Longhorn volumes, and holds that room." \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.base.name="${PYTHON_IMAGE}"
