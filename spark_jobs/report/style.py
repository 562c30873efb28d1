"""The page's style and its one script, as text: a file beside this one would be missing from a zip of `*.py`, as `spark-submit` takes."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root{color-scheme:light dark;--text:#1b1f24;--quiet:#57606a;--ground:#fff;--raised:#f5f7f9;--line:#d0d7de;--link:#0b5cad;
--mean:#8fb8de;--busy:#2f6ea8;--quota:#b35900;--bad:#c0262d;--good:#1a7f37;--warn:#fff3d6;--warnline:#c98a00}
@media(prefers-color-scheme:dark){:root{--text:#e6eaee;--quiet:#a2abb5;--ground:#14181d;--raised:#1d232a;--line:#39424c;--link:#7ab7ff;
--mean:#3c6a94;--busy:#8cc2f5;--quota:#ffab4d;--bad:#ff7b72;--good:#56d364;--warn:#3a2f10;--warnline:#d9a520}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--text);font:15px/1.45 system-ui,sans-serif}
main{max-width:78rem;margin:0 auto;padding:1rem}
h1{font-size:1.6rem;margin:.25rem 0}
h2{font-size:1.2rem;margin:2rem 0 .5rem}
h3{font-size:1rem;margin:0;overflow-wrap:anywhere}
p{margin:.4rem 0}
a{color:var(--link)}
.quiet,caption{color:var(--quiet)}
small,.small{font-size:.85rem}
.line{font-size:1.15rem;margin:.6rem 0}
.good{color:var(--good)}
.bad{color:var(--bad)}
.note{border-left:4px solid var(--warnline);background:var(--warn);padding:.4rem .7rem;margin:.5rem 0;overflow-wrap:anywhere}
code{font:.9em ui-monospace,monospace;overflow-wrap:anywhere}
code span{display:inline-block;max-width:100%}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
caption{text-align:left;padding:.2rem 0;font-size:.85rem}
th,td{padding:.25rem .75rem .25rem 0;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
th{font-size:.85rem;color:var(--quiet);font-weight:600;white-space:nowrap}
td.n,th.n{text-align:right;white-space:nowrap}
td.t{overflow-wrap:anywhere;min-width:9rem}
td.w{min-width:12rem}td[data-l]{white-space:nowrap}
.nights th[colspan]{text-align:center}.nights th[rowspan]{vertical-align:bottom}
h3 small{font-weight:400}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,26rem),1fr));gap:.75rem}
.card{border:1px solid var(--line);border-radius:.4rem;padding:.7rem .8rem;min-width:0;
content-visibility:auto;contain-intrinsic-size:auto 30rem}
.card table{font-size:.85rem}
.tag{display:inline-block;border:1px solid var(--line);border-radius:1rem;padding:0 .5rem;font-size:.8rem;color:var(--quiet)}
details{margin:.4rem 0}
summary{cursor:pointer;color:var(--link)}
svg{display:block;width:100%;height:auto;margin:.3rem 0}
svg text{font:10.5px system-ui,sans-serif;fill:var(--quiet)}
.e{text-anchor:end}.c{text-anchor:middle}
.g,.a{stroke:var(--line);fill:none}.g{stroke-dasharray:2 3}
.m{fill:var(--mean)}.b{stroke:var(--busy);stroke-width:1.5;fill:none}
.q{stroke:var(--quota);stroke-width:2;fill:none}.n{stroke:var(--quota);stroke-width:4;fill:none}
.r{fill:var(--bad)}.h rect{fill:transparent}
.key{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;padding:0;margin:.5rem 0;list-style:none;font-size:.85rem}
.key svg{display:inline-block;width:26px;height:12px;margin:0 .3rem 0 0;vertical-align:middle}
input{font:inherit;padding:.3rem .5rem;width:min(100%,26rem);color:inherit;background:var(--raised);
border:1px solid var(--line);border-radius:.3rem}
th button{all:unset;cursor:pointer;color:var(--link)}
th button:focus-visible{outline:2px solid var(--link)}
dl{display:grid;grid-template-columns:minmax(7rem,max-content) 1fr;gap:.3rem 1rem}
dt{font-weight:600}dd{margin:0}
@media(max-width:36rem){main{padding:.6rem}.card{padding:.5rem}svg text{font-size:13px}td.t{min-width:0}
.nights{font-size:.75rem!important}.nights td,.nights th{padding-right:.3rem;font-size:inherit}
dl{grid-template-columns:1fr}dd{margin:0 0 .4rem}
.stack thead{display:none}.stack tr{display:block;padding:.4rem 0;border-bottom:1px solid var(--line)}
.stack td{display:block;border:0;padding:0;white-space:normal}.stack td[data-l]::before{content:attr(data-l) ": ";color:var(--quiet)}}
[hidden]{display:none!important}
@media print{.card{break-inside:avoid}}
"""

# Sorts the table of all topics by a column, and hides the rows that do not hold the word typed. Without it all is there, in order.
SCRIPT: Final = """
(() => {
const table = document.getElementById("all");
if (!table) return;
const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells], rows = [...body.rows];
const box = document.getElementById("find"), said = document.getElementById("found");
let wait = 0;
box.hidden = false;
box.querySelector("input").addEventListener("input", event => {
  clearTimeout(wait);
  wait = setTimeout(() => {
    const word = event.target.value.toLowerCase();
    let shown = 0;
    for (const row of rows) {
      row.hidden = !row.cells[0].textContent.toLowerCase().includes(word);
      shown += !row.hidden;
    }
    said.textContent = word ? shown + " of " + rows.length + " topics" : "";
  }, 120);
});
const value = (row, at) => {
  const cell = row.cells[at], number = cell.dataset.v;
  return number === undefined ? cell.textContent : number === "" ? -1 : +number;
};
heads.forEach((head, at) => {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = head.textContent;
  head.textContent = "";
  head.append(button);
  let down = head.className === "n";
  button.addEventListener("click", () => {
    const sign = down ? -1 : 1;
    down = !down;
    rows.sort((one, other) => {
      const x = value(one, at), y = value(other, at);
      return x < y ? -sign : x > y ? sign : 0;
    });
    body.append(...rows);
    for (const each of heads) each.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", sign < 0 ? "descending" : "ascending");
  });
});
})()
"""
