# docker build --target floodmark -t floodmark .     the program
# The same image serves as driver and as executor on Kubernetes (docs/guides/platforms.md).
# docker build --target demo -t floodmark-demo .     and what its demo needs

FROM python:3.11-slim-bookworm AS floodmark
# procps: Spark's scripts call ps. The folder: Java's package expects it, and slim images lack it.
RUN mkdir -p /usr/share/man/man1 \
 && apt-get update \
 && apt-get install -y --no-install-recommends openjdk-17-jre-headless openssh-client procps \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/floodmark
COPY requirements.txt ./
RUN pip install --no-cache-dir --require-hashes -r requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir --no-deps --no-build-isolation .
COPY examples/kubernetes/entrypoint ./entrypoint
RUN useradd --create-home --uid 1000 floodmark
USER floodmark
WORKDIR /home/floodmark
ENTRYPOINT ["/opt/floodmark/entrypoint"]

FROM floodmark AS demo
USER root
RUN apt-get update \
 && apt-get install -y --no-install-recommends mariadb-server \
 && rm -rf /var/lib/apt/lists/*
USER floodmark
CMD ["demo"]
