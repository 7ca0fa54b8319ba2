# docker build -f scripts/docker/cpu.Dockerfile -t jaxrl-fast .
FROM python:3.12-slim
WORKDIR /opt/jaxrl_fast
COPY pyproject.toml README.md LICENSE ./
COPY jaxrl_fast jaxrl_fast
RUN pip install --no-cache-dir .
WORKDIR /work
ENTRYPOINT ["jaxrl-fast"]
CMD ["--help"]
