"""Configuration of the documentation site; ``make docs`` builds it into site/."""

import os
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]
os.environ.setdefault("OMP_NUM_THREADS", "1")  # examples are small
warnings.filterwarnings("ignore", category=DeprecationWarning, module="numpydoc|sphinx.*")

project = "shorthash"
author = "The shorthash authors"
copyright = "2026, the shorthash authors"  # noqa: A001
version = release = (HERE.parent / "CITATION.cff").read_text().split("\nversion: ")[1].split()[0]
repository = "https://github.com/shorthash/shorthash"

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "site_math",
    "site_pages",
    "site_docstrings",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["data", "gallery/**/GALLERY_HEADER.rst"]
highlight_language = "none"
templates_path = ["_templates"]
html_static_path = ["_static"]
suppress_warnings = ["config.cache"]

# Markdown
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "attrs_inline", "attrs_block"]
myst_heading_anchors = 3
myst_dmath_double_inline = True

# API reference
autosummary_generate = True
autodoc_typehints = "none"
autodoc_class_signature = "mixed"
numpydoc_show_class_members = False
numpydoc_xref_param_type = True
numpydoc_xref_aliases = {
    "RandomState": "numpy.random.RandomState",
    "ndarray": "numpy.ndarray",
    "Axes": "matplotlib.axes.Axes",
    "Figure": "matplotlib.figure.Figure",
}
numpydoc_xref_ignore = "all"

# Other projects: their inventories from the network, or else the names in site_inventories.py
from site_inventories import write_inventories  # noqa: E402

intersphinx_timeout = 5
intersphinx_mapping = write_inventories(HERE / "_inventories")

# Examples; the one for PostgreSQL gets a server of its own, and is left out where there is none
sys.path.append(str(HERE.parent / "tests"))
if "SHORTHASH_POSTGRES" not in os.environ:
    from postgres_server import start_server

    os.environ["SHORTHASH_POSTGRES"] = start_server()[0] or ""
left_out = r"__init__\.py" if os.environ["SHORTHASH_POSTGRES"] else r"__init__\.py|postgres_search\.py"
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py",
    "ignore_pattern": left_out,
    "abort_on_example_error": True,
    "backreferences_dir": "gallery/backreferences",
    "doc_module": ("shorthash",),
    "reference_url": {"shorthash": None},
    "remove_config_comments": True,
    "ignore_repr_types": "matplotlib|list|dict",
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1,
    "matplotlib_animations": False,
    "within_subsection_order": "site_pages.ExampleOrder",
    "write_computation_times": False,
    "reset_modules": ("matplotlib",),
}

# Pages
html_theme = "pydata_sphinx_theme"
html_title = "shorthash"
html_baseurl = "https://shorthash.github.io/shorthash/"
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "shorthash"},
    "github_url": repository,
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "start": [], "cli": []}
html_context = {"default_mode": "auto"}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
