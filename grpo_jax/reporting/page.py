"""HTML elements and the look of a report's page; nothing about its content."""

import html
from collections.abc import Iterable, Sequence


class Html(str):
  """Text that is markup already; `element` escapes any other string."""


def element(name: str, *children: str, **attributes: str) -> Html:
  """Builds <name attribute="...">children</name>; escapes all but `Html`.

  Args:
    name: the tag.
    children: text, which is escaped, or elements.
    attributes: escaped; `class_` stands for class.
  """
  given = "".join(
    f' {key.rstrip("_")}="{html.escape(value)}"'
    for key, value in attributes.items()
  )
  inner = "".join(
    child if isinstance(child, Html) else html.escape(child)
    for child in children
  )
  return Html(f"<{name}{given}>{inner}</{name}>")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
  """A table whose first column holds names and whose others hold figures."""
  lines = [element("tr", *(element("th", cell) for cell in header))]
  for row in rows:
    # A narrow screen may break "0.41 [0.36, 0.46]" before the bracket only.
    cells = (cell.replace(", ", ",\N{NO-BREAK SPACE}") for cell in row)
    lines.append(element("tr", *(element("td", cell) for cell in cells)))
  return element("div", element("table", *lines), class_="scroll")


def document(title: str, *body: str) -> str:
  """A whole page that loads nothing from elsewhere."""
  head = element(
    "head",
    Html('<meta charset="utf-8">'),
    Html('<meta name="viewport" content="width=device-width">'),
    Html('<meta name="color-scheme" content="light dark">'),
    element("title", title),
    Html(f"<style>{CSS}</style>"),
  )
  page = element(
    "html", head, element("body", element("main", *body)), lang="en"
  )
  return f"<!doctype html>\n{page}\n"


CSS = """
:root {
  --page: #f6f7f8; --card: #fff; --text: #1c1e21; --soft: #667079;
  --line: #e3e5e8; --accent: #0072b2; --code: #f3f4f6;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #101010; --card: #1a1a1a; --text: #e8e8e8; --soft: #a0a0a0;
    --line: #2e2e2e; --accent: #56b4e9; --code: #242424;
  }
  /* Turns a plot's white into the card's #1a1a1a and keeps its hues. */
  figure img { filter: invert(0.92) hue-rotate(180deg) brightness(1.25); }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
main { max-width: 1240px; margin: 0 auto; padding: 36px 20px 48px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 18px; margin: 40px 0 12px; }
h3 { font-size: 14px; margin: 24px 0 8px; font-weight: 600; }
p, footer { color: var(--soft); margin: 6px 0; }
h2 + p { margin: -6px 0 12px; }
p.note { border-left: 3px solid #e69f00; padding-left: 12px; }
.cards, .plots, .pair, .tables { display: grid; gap: 14px; }
.cards { grid-template-columns: repeat(auto-fit, minmax(215px, 1fr)); }
.plots { grid-template-columns: repeat(auto-fill, minmax(340px, 1fr)); }
.pair { grid-template-columns: repeat(auto-fit, minmax(340px, 1fr)); }
.cards { margin-top: 24px; }
@media (min-width: 1000px) { .tables { grid-template-columns: 3fr 2fr; } }
.card, figure {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 14px 16px; margin: 0; min-width: 0;
}
.card .label { color: var(--soft); font-size: 13px; }
.card .value {
  font-size: 24px; font-weight: 650; white-space: nowrap;
  font-variant-numeric: tabular-nums; letter-spacing: -0.02em;
}
.card .detail { color: var(--soft); font-size: 13px; }
.card.lead .value { color: var(--accent); }
figure img { width: 100%; height: auto; display: block; }
figcaption { color: var(--soft); font-size: 13px; margin-top: 8px; }
.scroll {
  overflow-x: auto; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; padding: 4px 16px; min-width: 0; align-self: start;
}
table {
  border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums;
}
th, td { padding: 8px 0 8px 20px; text-align: right; }
@media (min-width: 600px) { th, td { white-space: nowrap; } }
@media (max-width: 599px) {
  main { padding: 24px 12px; }
  .plots, .pair { grid-template-columns: minmax(0, 1fr); }
  .scroll { padding: 4px 12px; font-size: 13px; }
  th, td { padding-left: 10px; }
}
th:first-child, td:first-child { padding-left: 0; text-align: left; }
th { color: var(--soft); font-weight: 500; font-size: 13px; }
tr + tr { border-top: 1px solid var(--line); }
pre {
  margin: 0; overflow: auto; max-height: 340px; white-space: pre-wrap;
  overflow-wrap: anywhere; background: var(--code); border-radius: 8px;
  padding: 10px 12px;
  font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
}
.meta { display: flex; flex-wrap: wrap; gap: 4px 14px; margin-bottom: 8px;
  color: var(--soft); font-size: 13px; }
.meta b { color: var(--text); font-weight: 600; }
details { margin-top: 40px; }
summary { cursor: pointer; font-size: 18px; font-weight: 600; }
details pre { margin-top: 12px; max-height: none; }
footer {
  margin-top: 40px; padding-top: 14px; border-top: 1px solid var(--line);
  font-size: 13px;
}
"""
