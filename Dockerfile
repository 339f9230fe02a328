# A server for one deployed network:
#   make dist && docker build -t prunus-serve .
#   docker run -p 8000:8000 -v $PWD/model.prunus:/model.prunus:ro prunus-serve
FROM python:3.13-slim
COPY dist/prunus_runtime-*.whl /wheels/
# Ours first, from nowhere else; then what it needs.
RUN pip install --no-cache-dir --no-index --no-deps --find-links /wheels prunus-runtime \
 && pip install --no-cache-dir 'prunus-runtime[images,serve]'
USER nobody
EXPOSE 8000
ENTRYPOINT ["python", "-m", "prunus_runtime.serving", "--host", "0.0.0.0"]
CMD ["/model.prunus"]
