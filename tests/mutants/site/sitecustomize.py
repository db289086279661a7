"""Imports one module of the product as a mutant: `ACKQ_MUTANT=MODULE:INDEX`.

On PYTHONPATH of a test run, so that the processes which tests start import it, too.
"""

import importlib.machinery
import os
import sys

_MODULE, _, _INDEX = os.environ["ACKQ_MUTANT"].partition(":")
sys.path.insert(0, os.environ["ACKQ_MUTANT_ROOT"])


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles the source with the change made; nothing is read from a cache or written to it."""

    def get_code(self, fullname):
        from tests.mutants.mutation import mutated

        path = self.get_filename(fullname)
        tree = mutated(self.get_data(path).decode(), int(_INDEX))
        return compile(tree, path, "exec", dont_inherit=True)


class _Finder:
    """Finds the module that is a mutant."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        if fullname != _MODULE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        spec.loader = _Loader(fullname, spec.origin)
        return spec


sys.meta_path.insert(0, _Finder)
