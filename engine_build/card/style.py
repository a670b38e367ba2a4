"""The card's style sheet: one column on a phone, light and dark by the reader's own wish."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #f4f5f7; --sheet: #ffffff; --ink: #171b24; --muted: #586173; --line: #dfe3e9; --soft: #eef1f5;
  --accent: #0b63b8; --accent-soft: #e3effa; --warm: #b4530a; --other: #a9b4c2; --whisker: #4d5868;
  --good: #11713f; --good-soft: #e1f4e8; --bad: #b3261e; --bad-soft: #fbe6e4; --unsure: #7a5300; --unsure-soft: #fbf0d5;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0e1117; --sheet: #171b23; --ink: #e9ecf2; --muted: #9ba6b7; --line: #2b313d; --soft: #1f2530;
    --accent: #62b0ff; --accent-soft: #16304a; --warm: #ffa25c; --other: #566173; --whisker: #aab5c5;
    --good: #5fd394; --good-soft: #143424; --bad: #ff8a80; --bad-soft: #43201e; --unsure: #f0c25a; --unsure-soft: #3b2f12;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink); font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto,
  "Helvetica Neue", Arial, sans-serif; -webkit-text-size-adjust: 100%;
}
main { max-width: 1080px; margin: 0 auto; padding: 32px 20px 64px; }
header { margin: 0 0 20px; }
.over { color: var(--muted); font-size: 13px; letter-spacing: .04em; text-transform: uppercase; margin: 0; }
h1 { font-size: clamp(26px, 5vw, 38px); line-height: 1.15; letter-spacing: -.02em; margin: 4px 0 10px; overflow-wrap: anywhere; }
h2 { font-size: 19px; letter-spacing: -.01em; margin: 0 0 4px; }
h3 { font-size: 13.5px; font-weight: 600; margin: 0 0 6px; }
p { margin: 0 0 12px; }
.note { color: var(--muted); font-size: 13.5px; max-width: 76ch; }
.decision { font-size: 16.5px; max-width: 72ch; margin: 14px 0 8px; }
.chips { display: flex; flex-wrap: wrap; gap: 8px; margin: 0; padding: 0; list-style: none; }
.chip { background: var(--soft); border: 1px solid var(--line); border-radius: 999px; padding: 2px 11px; font-size: 13px; }
.chip.main { background: var(--accent); border-color: var(--accent); color: var(--sheet); font-weight: 650; }
section {
  background: var(--sheet); border: 1px solid var(--line); border-radius: 14px; padding: 22px 24px; margin: 0 0 16px;
}
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 0 0 16px; padding: 0; }
.tile { background: var(--sheet); border: 1px solid var(--line); border-radius: 14px; padding: 14px 16px; }
.tile dt { color: var(--muted); font-size: 12.5px; }
.tile dd { margin: 2px 0 0; font-size: 23px; font-weight: 650; letter-spacing: -.02em; line-height: 1.2; }
.tile small {
  display: block; color: var(--muted); font-size: 12.5px; font-weight: 400; letter-spacing: 0; line-height: 1.35; margin-top: 3px;
}
.charts {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(min(290px, 100%), 1fr)); gap: 22px 28px; margin: 14px 0 18px;
}
figure { margin: 0; max-width: 460px; }
figcaption { font-size: 13.5px; font-weight: 600; margin: 0 0 6px; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; fill: var(--ink); }
svg .tick { fill: var(--muted); font-size: 12px; }
svg .mine { font-weight: 650; fill: var(--accent); }
svg .warm { fill: var(--warm); }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .axis { stroke: var(--muted); stroke-width: 1; }
svg .bar { fill: var(--other); }
svg .bar.own { fill: var(--accent); }
svg .whisker { stroke: var(--whisker); stroke-width: 1.5; fill: none; }
svg .whisker.own { stroke: var(--accent); stroke-width: 2; }
svg .budget { stroke: var(--warm); stroke-width: 1.5; stroke-dasharray: 5 4; fill: none; }
svg .drop { stroke: var(--accent); stroke-width: 1.5; stroke-dasharray: 2 3; }
svg .path { stroke: var(--other); stroke-width: 1.5; fill: none; }
svg .dot { fill: var(--sheet); stroke: var(--whisker); stroke-width: 1.75; }
svg .dot.own { fill: var(--accent); stroke: var(--sheet); stroke-width: 2; }
.legend { color: var(--muted); font-size: 12.5px; margin: -6px 0 14px; }
.scroll { overflow-x: auto; margin: 0 -24px; padding: 0 24px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--muted); font-size: 12.5px; padding: 0 0 6px; }
th, td {
  text-align: left; padding: 6px 16px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top; white-space: nowrap;
}
th { color: var(--muted); font-weight: 600; font-size: 12.5px; }
td.number, th.number { text-align: right; }
td.words { white-space: normal; min-width: 240px; }
th:last-child, td:last-child { padding-right: 0; }
tr:last-child td { border-bottom: 0; }
tr.own td { background: var(--accent-soft); }
tr.own td:first-child { box-shadow: -8px 0 0 var(--accent-soft); font-weight: 650; }
tr.own td:last-child { box-shadow: 8px 0 0 var(--accent-soft); }
.badge { border-radius: 6px; padding: 1px 7px; font-size: 12.5px; font-weight: 600; white-space: nowrap; }
.badge.good { color: var(--good); background: var(--good-soft); }
.badge.bad { color: var(--bad); background: var(--bad-soft); }
.badge.unsure { color: var(--unsure); background: var(--unsure-soft); }
code, pre { font: 12.5px/1.6 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
code { overflow-wrap: anywhere; }
pre {
  background: var(--soft); border-radius: 10px; padding: 14px 16px; margin: 12px 0 0;
  white-space: pre-wrap; overflow-wrap: anywhere;
}
pre + .scroll { margin-top: 18px; }
details { margin: 14px 0 0; }
summary { cursor: pointer; color: var(--accent); font-size: 13.5px; font-weight: 600; }
details[open] summary { margin-bottom: 8px; }
dl.pairs { display: grid; grid-template-columns: max-content 1fr; gap: 6px 20px; margin: 12px 0 0; font-size: 13.5px; }
dl.pairs dt { color: var(--muted); }
dl.pairs dd { margin: 0; overflow-wrap: anywhere; }
footer { color: var(--muted); font-size: 12.5px; padding: 4px 4px 0; }
@media (max-width: 600px) {
  main { padding: 20px 12px 48px; }
  section { padding: 18px 16px; border-radius: 12px; }
  .scroll { margin: 0 -16px; padding: 0 16px; }
  .tiles { grid-template-columns: repeat(2, 1fr); gap: 8px; }
  .tile { padding: 11px 12px; }
  .tile dd { font-size: 19px; }
  dl.pairs { grid-template-columns: 1fr; gap: 0; }
  dl.pairs dd { margin-bottom: 8px; }
}
@media print { body { background: none; } section, .tile { break-inside: avoid; } details > * { display: block; } }
"""
