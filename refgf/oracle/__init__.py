"""The oracle: what each technique must produce, golden cases, and a checker for other implementations.

    SPEC.md       numbered statements; definitions/ has a function of a few lines for each
    golden/       cases with inputs, intermediate states and results
    python -m refgf.oracle --help

Needs NumPy and safetensors; no MPI, no matplotlib. Importing this imports nothing.
"""
