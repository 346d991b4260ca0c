"""The oracle: what each technique must produce, golden cases, and a checker for implementations.

    SPEC.md         numbered statements
    spec/           each statement: its definition, golden and fresh cases, mistakes and exercise
    definitions     what spec/ defines, under one name
    judge/          the checker: run it with python -m refgf.oracle --help
    grade/          marks for students' files
    foreign/        the wall around code that is not ours
    reveal/         the summation tree of any allreduce, as a black box
    golden/LETTER/  cases with inputs, intermediate states and results, by letter of the statement
    step/           a PyTorch training step on p ranks and on one: rounding or a bug?
    torch_ddp       the checker attached to PyTorch DDP; torch_hooks: hooks to try it on

Needs NumPy and safetensors files; no MPI, no matplotlib. Importing this package imports nothing.
"""
