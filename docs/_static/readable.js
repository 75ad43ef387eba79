// A button on each piece of code copies it. Of a session with prompts, what was typed.
function typed(text) {
  if (!/^>>> /m.test(text)) return text.trimEnd();
  return text.split("\n").filter((line) => /^(>>>|\.\.\.)( |$)/.test(line)).map((line) => line.slice(4)).join("\n");
}
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // a page that was opened from a folder may not be allowed to
    const field = Object.assign(document.createElement("textarea"), { value: text });
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}
for (const code of document.querySelectorAll(".bd-article div.highlight")) {
  if (code.closest(".cell_output") || code.closest("table")) continue;
  const button = Object.assign(document.createElement("button"), { className: "copy", type: "button", textContent: "Copy" });
  button.addEventListener("click", async () => {
    await copy(typed(code.querySelector("pre").textContent));
    button.textContent = "Copied";
    button.classList.add("done");
    setTimeout(() => {
      button.textContent = "Copy";
      button.classList.remove("done");
    }, 1500);
  });
  code.append(button);
}

// What is wider than the page scrolls in its box: its edge fades where there is more, and keys move it.
const WIDE = `.bd-article :is(div.math, span.math.long, .wide, pre, .pst-scrollable-table-container, .cell_output .text_html,
  .explorer > div:last-child)`;
const NAMES = { ".math": "A formula", ".wide": "A figure", pre: "Code", "*": "A table" };

function look(box) {
  const more = box.scrollWidth - box.clientWidth;
  if (more <= 1) {
    delete box.dataset.more;
    if (box.dataset.scrolls) for (const name of ["tabindex", "role", "aria-label", "data-scrolls"]) box.removeAttribute(name);
    return;
  }
  const left = box.scrollLeft > 1, right = box.scrollLeft < more - 1;
  box.dataset.more = left && right ? "both" : left ? "left" : "right";
  if (box.dataset.scrolls || box.hasAttribute("tabindex")) return;
  box.dataset.scrolls = "true";
  box.tabIndex = 0;
  if (box.closest(".explorer")) return; // a widget's groups are its rows of buttons
  const name = Object.entries(NAMES).find(([which]) => box.matches(which))[1];
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", `${name}, wider than the page: it scrolls sideways`);
}
const sizes = new ResizeObserver((seen) => seen.forEach(({ target }) => look(target)));
const watched = new WeakSet();
function watch() {
  for (const box of document.querySelectorAll(WIDE)) {
    if (watched.has(box)) continue;
    watched.add(box);
    sizes.observe(box);
    box.addEventListener("scroll", () => look(box), { passive: true });
    for (const image of box.querySelectorAll("img")) image.addEventListener("load", () => look(box));
    look(box);
  }
}
watch();
document.fonts.ready.then(() => document.querySelectorAll(WIDE).forEach(look));
// Widgets are drawn later.
new MutationObserver(watch).observe(document.documentElement, { attributeFilter: ["data-ready"] });

// The book's name stands outside of every landmark.
document.querySelector(".bd-sidebar-primary .sidebar-primary-item:has(> .navbar-brand)")?.setAttribute("role", "banner");
