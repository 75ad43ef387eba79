"use strict";
// Tables are sorted by their headings and filtered by the form above them. Without this script all of it can be read.

function value(row, column) {
  const cell = row.cells[column];
  const text = cell.dataset.value ?? cell.textContent.trim();
  const number = Number(text);
  return text === "" ? null : Number.isNaN(number) ? text : number;
}

function compare(a, b) {
  return typeof a === "number" && typeof b === "number"
    ? a - b
    : String(a).localeCompare(String(b), undefined, { numeric: true });
}

// Rows without a value stay at the end, whichever way the others go.
function sort(table, column, descending) {
  const rows = [...table.tBodies[0].rows].map((row) => [value(row, column), row]);
  rows.sort(([a], [b]) =>
    a === null || b === null ? (a === null) - (b === null) : descending ? compare(b, a) : compare(a, b));
  table.tBodies[0].append(...rows.map(([, row]) => row));
}

// What the address points to.
function target() {
  return document.getElementById(decodeURIComponent(location.hash.slice(1)));
}

for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const descending = heading.getAttribute("aria-sort") === "ascending";
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
      sort(table, column, descending);
    });
  });
}

const form = document.querySelector("form.filter");
if (form) {
  const rows = [...document.querySelectorAll("#every-student tbody tr")];
  const { find, show } = form.elements;
  const count = form.querySelector("output");
  const apply = () => {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const kinds = row.dataset.kinds.split(" ");
      row.hidden = !(words.every((word) => text.includes(word)) && (show.value === "" || kinds.includes(show.value)));
    }
    count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
  };
  const only = (kind) => {
    find.value = "";
    show.value = kind;
    apply();
  };
  form.hidden = false;
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.querySelector("button").addEventListener("click", () => only(""));
  apply();
  for (const link of document.querySelectorAll("a[data-show]")) {
    link.addEventListener("click", () => only(link.dataset.show));
  }
  // A link to a student shows that row, whatever is filtered.
  addEventListener("hashchange", () => {
    if (target()?.hidden) only("");
  });
}

// A link leads into what is folded, too.
function unfold() {
  for (let place = target(); place; place = place.parentElement) if (place.tagName === "DETAILS") place.open = true;
  target()?.scrollIntoView();
}
addEventListener("hashchange", unfold);
unfold();
document.documentElement.dataset.ready = "";
