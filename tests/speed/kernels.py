"""Which kernels multiply matrices here and in PyTorch: slow ones on one side spoil a ratio.

python tests/speed/kernels.py
"""

import importlib.util


def of_numpy() -> list[str]:
    import numpy  # noqa: F401  loads its BLAS
    from threadpoolctl import threadpool_info

    blas = [library for library in threadpool_info() if library["user_api"] == "blas"]
    return [f"{b['internal_api']} {b['version']} {b.get('architecture', '')}" for b in blas]


def of_torch() -> list[str]:
    import torch

    lines = torch.__config__.show().splitlines()
    libraries = [line.strip(" -") for line in lines if "Intel(R)" in line]
    return [f"PyTorch {torch.__version__}", torch.backends.cpu.get_cpu_capability(), *libraries]


if __name__ == "__main__":
    print("BLAS of refgf:", "; ".join(of_numpy()))
    if importlib.util.find_spec("torch"):
        print("kernels of PyTorch:", "; ".join(of_torch()))
