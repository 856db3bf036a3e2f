"""How the documentation is built: Sphinx, Markdown, the furo theme. ``make docs``."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for reference_pages

from reference_pages import write_reference  # noqa: E402 - found by the line above

project = "Henchman"
author = "The Henchman engineers"
project_copyright = author
extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "Henchman"
autodoc_typehints = "description"

write_reference(HERE / "_generated")
