"""Mutants: what the tests notice of small changes to the product.

    python -m tests.mutants --area core --count 60 --seed 1 -- tests/unit/core

draws 60 changes of one operator, condition, constant or call in the modules of an area, and runs
the tests once with each. No file is changed: the process and its children import the mutant.
"""
