# docker build -f scripts/docker/cuda.Dockerfile -t jaxrl-fast:cuda .
# CUDA comes as wheels; the host needs the driver and the NVIDIA container toolkit (docker run --gpus all).
FROM python:3.12-slim
WORKDIR /opt/jaxrl_fast
COPY pyproject.toml README.md LICENSE ./
COPY jaxrl_fast jaxrl_fast
RUN pip install --no-cache-dir '.[cuda12]'
WORKDIR /work
ENTRYPOINT ["jaxrl-fast"]
CMD ["--help"]
