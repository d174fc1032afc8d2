"""Breakages planted one at a time: tests must go red on them.

`product.py` has those of the product. Those of the payload are chosen by hand: its suites must go
red on every one.

Each `*.toml` beside this file lists the mutants of one module:

    [[mutant]]
    name = "inverted-scale"                       # unique in its file
    file = "torchbridge/fp8/scaling.py"           # below payload/
    old = "amax / limit"                          # occurs exactly once in the file
    new = "limit / amax"
    suites = ["suites/test_fp8_native.py"]        # pytest arguments; these must fail
    defect = 3                                    # optional: the reference's own, by number
"""
