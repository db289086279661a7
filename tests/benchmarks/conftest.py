"""The benchmarks' modules import each other as programs do: by this folder."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
