"""The benchmarks' modules import each other as programs do: from this folder."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
