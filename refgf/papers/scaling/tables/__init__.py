"""Published numbers as data: one TOML file for each source, which its first lines name.

machines        links and allreduces of published clusters        (published.py)
mgwfbp          sixteen rows of steps on 16 GPUs                   (rows.py)
ddl_benchmarks  throughputs of three networks on three networks    (benchmark_rows.py)
b_caffe         throughputs of nodes with a K80                    (benchmark_rows.py)
"""

import tomllib
from pathlib import Path
from typing import Any


def read(name: str) -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text())
