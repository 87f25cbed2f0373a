"""The torch engine: a model as plain torch functions, captured as CUDA graphs on a GPU."""
