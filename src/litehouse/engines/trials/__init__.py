"""Trials of an engine in a child process, since a native library can kill the process that it is in.

Real case: a virtual machine whose CPU announces AMX but has no tile palette. OpenVINO in bfloat16 and int8 dies there
with an illegal instruction. `children` starts the trials; `python -m litehouse.engines.trials` is one; `cases` holds
the small networks that it runs.
"""
