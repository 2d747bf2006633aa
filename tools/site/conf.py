"""Sphinx configuration of the site. `make site` builds it from the repository's Markdown and treats warnings as errors.
"""

import re

project = "thumbcached"
extensions = ["myst_parser"]
root_doc = "README"

# The order of the site. Sphinx warns about a document that is not listed.
PARTS = {
    "Begin": ["docs/quick-starts", "docs/clients", "clients/python/README", "examples/README"],
    "The Swift library": ["Sources/Thumbcache/Thumbcache.docc/Thumbcache",
                          "Sources/Thumbcache/Thumbcache.docc/Showing-Images"],
    "Reference": ["docs/protocol", "docs/metrics", "docs/configuration", "docs/recipes", "docs/origins", "docs/freshness", "docs/renditions"],
    "Run it": ["docs/operations", "docs/http", "docs/sizing", "fleet/docs/fleet", "fleet/docs/oidc"],
    "How it works": ["docs/design", "docs/guarantees", "docs/performance", "docs/glossary"],
    "The project": ["CONTRIBUTING", "CHANGELOG", "SECURITY"],
}
include_patterns = ["*.md", "docs/*.md", "fleet/docs/*.md", "clients/python/*.md", "examples/*.md",
                    "Sources/Thumbcache/Thumbcache.docc/*.md"]
# Skips build output.
exclude_patterns = [".*", "dist", "Tests"]

# Gives headings the same anchors as GitHub.
myst_heading_anchors = 6
# Does not replace `--` by a dash.
smartquotes = False
# No highlighting of blocks without a language.
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
    """Adds the table of contents to the first document, and converts DocC's links to Markdown."""
    if name == root_doc:
        for caption, names in PARTS.items():
            source[0] += "\n\n```{toctree}\n:hidden:\n:caption: %s\n%s\n```\n" % (
                caption, "\n".join("/" + name for name in names))
    source[0] = re.sub(r"^# ``(\w+)``$", r"# \1", source[0], count=1, flags=re.MULTILINE)
    source[0] = re.sub(r"<doc:([\w-]+)>", lambda link: f"[{link[1].replace('-', ' ')}]({link[1]}.md)", source[0])


def break_paths(app, name, template, context, tree):
    """Lets a path in a narrow column break after a slash."""
    if context.get("body"):
        context["body"] = re.sub(
            r'(?<=<span class="pre">)[^<]+(?=</span>)', lambda piece: piece[0].replace("/", "/<wbr>"), context["body"])


def setup(app):
    app.connect("source-read", parts)
    app.connect("html-page-context", break_paths)
