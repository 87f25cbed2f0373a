"""Case tables and the harness behind ``tools/make_mge_fixtures.py``.

One file per family of operators; a case is a few lines in the file of its family. Either form does::

    @case(f32(2, 3, 5), f32(5))                # what to draw for each argument
    def elemwise_add_row(x, y):                # the name of the function is the name of the case
        return x + y

    add("elemwise_exp", F.exp, f32(2, 3, 5))   # handy in loops and for one-liners

- An input is `f32`, `f16`, `i32`, `i16`, `i8`, `u8`, `u16` or `boolean` with its shape (and ``low=``, ``high=``), or a
  literal array: `values([1, 2], "int32")`. The seed comes from the name of the case. Inputs are called x, y, z, w, v, u
  in the file.
- A constant inside a case is `weight(4, 3, 3, 3)`: the same values in every run.
- A case may be a `megengine.module.Module`, or a class of one; it gets random weights and statistics, and is put into
  inference mode.
- Every further keyword is an option of MegEngine's ``dump``, or of its tracer. `KEEP` (``**KEEP``) keeps the new
  operators, which a default dump rewrites into older ones; `RAW` also leaves out all optimisation.
- An operator that no function of MegEngine emits is reached by ``run_op(builtin.Something(...), x, y)``; `applied`
  makes a function of such an operator: ``add("something", applied(builtin.Something()), f32(2, 3), **RAW)``.
- ``step=0.05`` allows an error of one quantisation step, ``relative=1e-3`` another error relative to the range of the
  output than the tests allow for its type, ``unordered=True`` says that the elements of the outputs come in any order.
- ``reference=`` gives the outputs where lite cannot run the file, or runs it wrongly: a dictionary of other options of
  the dump, or an equivalent function. Say why in a comment.
- ``resized=[f32(...), ...]`` gives a second set of inputs in other shapes, which the same file must run as well.

Cases stay small: 2-8 channels, sizes 5-12. Make the case, then look at what was dumped::

    PEER tools/make_mge_fixtures.py elemwise 'conv_*'     # a family, or patterns of case names
"""
