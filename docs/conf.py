"""The documentation site: `make docs` writes it to build/site.

Pages are the Markdown files of this folder. The build writes results.md, speed.md and commands.md first.
Nothing is fetched while it is built or read: formulas become MathML, and scripts, styles and fonts are the theme's own
files.
"""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent / "src"), str(DOCS / "site"), str(DOCS)]

import fewlink  # noqa: E402
import generate  # noqa: E402

generate.write_site_pages()

project = "fewlink"
author = "the fewlink authors"
copyright = "the fewlink authors"
version = release = fewlink.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton", "mathml", "pages", "public_names"]
exclude_patterns = ["site", "README.md", "**/.ipynb_checkpoints"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
nitpicky = True
smartquotes = False  # options keep their two hyphens

# Markdown
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
nb_execution_mode = "off"  # notebooks are shown with the outputs they were saved with; a test runs them
highlight_language = "text"

# Docstrings
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
python_maximum_signature_line_length = 100
add_module_names = False

# HTML
html_theme = "furo"
html_title = "fewlink"
html_static_path = ["site/static"]
html_css_files = ["fewlink.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {"color-brand-primary": "#0b5c8a", "color-brand-content": "#0b5c8a"},
    "dark_css_variables": {"color-brand-primary": "#6cb8e6", "color-brand-content": "#6cb8e6"},
}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
copybutton_line_continuation_character = "\\"
