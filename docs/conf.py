"""How Sphinx builds the web book. `attncourse site` puts the sources together and calls it."""

from importlib import metadata

project = "attncourse"
author = "the attncourse authors"
copyright = "Texts and pictures: CC BY 4.0. Code: BSD-3-Clause"
language = "en"
release = metadata.version("attncourse")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "lessonkit.authoring.site.extension",
    "lessonkit.authoring.site.search",
]
templates_path = ["_templates"]
# Offered as they are, or part of another page.
exclude_patterns = ["assignments/*/**", "notebooks/**", "README.md", "_templates"]

nb_execution_mode = "off"
# Of a cell tagged hide-input; a solution's say "answer".
nb_code_prompt_show = "Show the code"
nb_code_prompt_hide = "Hide the code"
myst_enable_extensions = ["dollarmath", "amsmath", "attrs_block", "colon_fence"]
myst_heading_anchors = 3
myst_dmath_double_inline = True

# `attncourse site` puts MathML in the place of TeX. Where it has no Node for that, it puts MathJax into _static.
mathjax_path = "tex-svg.js"
nb_ipywidgets_js = {"widgets.js": {"defer": "defer"}}

autosummary_generate = True
autodoc_default_options = {"members": True, "member-order": "bysource", "no-value": True}
autodoc_inherit_docstrings = False
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autoclass_content = "class"
# Docstrings write names between single backticks.
default_role = "code"
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"
maximum_signature_line_length = 80

html_theme = "sphinx_book_theme"
html_title = "attncourse"
html_static_path = ["_static"]
STYLES = ("book", "search", "readable", "landing", "assignments", "references", "pages")
html_css_files = [f"{name}.css" for name in STYLES]
SCRIPTS = ("book.js", "search.js", "readable.js", "landing.js", "references.js")
html_js_files = [(name, {"defer": "defer"}) for name in SCRIPTS]
html_additional_pages = {"search": "search.html"}
html_last_updated_fmt = "%d %B %Y"
html_copy_source = False
html_show_sourcelink = False
html_context = {"default_mode": "auto"}
html_theme_options = {
    "show_toc_level": 2,
    "use_download_button": False,
    "use_fullscreen_button": False,
    "footer_content_items": ["author.html", "copyright.html", "colophon.html"],
    "search_bar_text": "Search the course",
    "toc_title": "On this page",
    "pygments_light_style": "a11y-light",
    "pygments_dark_style": "a11y-dark",
}
