"""`python -m refgf.predict plan`: runs refgf.plan, which lies behind the wall."""

import runpy

if __name__ == "__main__":
    runpy.run_module("refgf.plan", run_name="__main__", alter_sys=False)
