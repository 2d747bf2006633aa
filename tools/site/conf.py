"""The documents as a site: Sphinx reads the repository's own Markdown where it lies, as GitHub does (MyST: CommonMark,
tables, anchors of headings). `make site` builds it; every warning is an error there."""

import re

project = "thumbcached"
extensions = ["myst_parser"]
root_doc = "README"

# The order of the site. A document that is in no part of it is a warning.
PARTS = {
    "Begin": ["docs/quick-starts", "docs/clients", "examples/README"],
    "The Swift library": ["Sources/Thumbcache/Thumbcache.docc/Thumbcache",
                          "Sources/Thumbcache/Thumbcache.docc/Showing-Pictures"],
    "Reference": ["docs/protocol", "docs/configuration", "docs/origins", "docs/renditions"],
    "Run it": ["docs/operations", "fleet/docs/fleet"],
    "How it works": ["docs/design", "docs/guarantees", "docs/performance"],
    "The project": ["CONTRIBUTING", "CHANGELOG", "SECURITY"],
}
include_patterns = ["*.md", "docs/*.md", "fleet/docs/*.md", "examples/*.md", "Sources/Thumbcache/Thumbcache.docc/*.md"]
# What a build leaves is not even walked through.
exclude_patterns = [".*", "dist", "Tests"]

# Headings have the anchors that GitHub gives them.
myst_heading_anchors = 6
# Characters stay as they are: `--` is no dash.
smartquotes = False
# Blocks without a language are shown as they are.
highlight_language = "none"

html_theme = "furo"
html_title = "thumbcached"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_extra_path = ["index.html"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_use_index = False
html_theme_options = {"top_of_page_buttons": []}


def parts(app, name, source):
    """Adds what follows to the first document, and turns DocC's own ways of naming things into Markdown's."""
    if name == root_doc:
        for caption, names in PARTS.items():
            source[0] += "\n\n```{toctree}\n:hidden:\n:caption: %s\n%s\n```\n" % (
                caption, "\n".join("/" + name for name in names))
    source[0] = re.sub(r"^# ``(\w+)``$", r"# \1", source[0], count=1, flags=re.MULTILINE)
    source[0] = re.sub(r"<doc:([\w-]+)>", lambda link: f"[{link[1].replace('-', ' ')}]({link[1]}.md)", source[0])


def break_paths(app, name, template, context, tree):
    """A path in a narrow column is broken behind a slash, rather than anywhere."""
    if context.get("body"):
        context["body"] = re.sub(
            r'(?<=<span class="pre">)[^<]+(?=</span>)', lambda piece: piece[0].replace("/", "/<wbr>"), context["body"])


def setup(app):
    app.connect("source-read", parts)
    app.connect("html-page-context", break_paths)
