# syntax=docker/dockerfile:1
# The image: one static binary, its configuration, certificates of public authorities, and nothing else (no shell). The binary
# is there under Calico's names too, so that a Deployment that names Typha's program starts it (the operator's does).
#
#   docker build -t bulrush:0.1.0 \
#     --build-arg BULRUSH_BUILD_DATE="$(date -u +%Y-%m-%dT%H:%M:%SZ)" --build-arg BULRUSH_GIT_COMMIT="$(git rev-parse HEAD)" .
#
# musl links everything statically. Its allocator does not matter: jemalloc takes its place in Rust's code and in C's. glibc would
# copy and compare memory faster (docs/performance.md), but linked statically it asks for memory before jemalloc's heap profiler
# can look at the stack, and the program aborts.

# As in rust-toolchain.toml.
ARG RUST_VERSION=1.95.0

FROM rust:${RUST_VERSION}-bookworm AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates musl-tools \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY rust-toolchain.toml ./
COPY deploy/image/target deploy/image/target
RUN target="$(deploy/image/target)" && rustup target add "$target"
COPY . .
# What `bulrush version` prints.
ARG BULRUSH_BUILD_DATE=unknown
ARG BULRUSH_GIT_COMMIT=unknown
# Kernels of 64-bit Arm and POWER have pages of up to 64 KiB; an allocator for the largest runs on all.
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    target="$(deploy/image/target)" \
    && case $target in aarch64-* | powerpc64le-*) export JEMALLOC_SYS_WITH_LG_PAGE=16 ;; esac \
    && export "CC_$(echo "$target" | tr - _)=musl-gcc" \
    && cargo build --profile dist --locked --bin bulrush --target "$target" \
    && deploy/image/layout "target/$target/dist/bulrush" /etc/ssl/certs/ca-certificates.crt /image \
    && env -i /image/usr/bin/bulrush version

FROM scratch
LABEL org.opencontainers.image.title="bulrush" \
      org.opencontainers.image.description="Fan-out sync proxy for Calico's agents, drop-in for Typha" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/bulrush/bulrush"
COPY --from=build /image/ /
# By number, so that Kubernetes can see that it is not root.
USER 10001:10001
# Agents, health, metrics.
EXPOSE 5473 9098 9093
ENTRYPOINT ["/usr/bin/bulrush"]
