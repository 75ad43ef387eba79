// A pad to draw who may attend to whom; it counts what the pattern costs, and the receptive field of a position through layers.

const LAYERS = 4;
const BLOCK = 4;

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Which positions have reached each one after one layer more. A residual connection keeps what it had.
function onward(heard, rows) {
  return rows.map((row, i) => heard[i].map((had, k) => had || row.some((allowed, j) => allowed && heard[j][k])));
}

export function facts(rows, asking) {
  const n = rows.length;
  const causal = rows.every((row, i) => row.every((allowed, j) => !allowed || j <= i));
  const wanted = (i) => (causal ? i + 1 : n);
  const count = (row) => row.filter(Boolean).length;
  let heard = rows.map((_, i) => rows.map((_, k) => i === k));
  const reach = [];
  let all = null;
  for (let layer = 1; layer <= Math.max(n, LAYERS); layer++) {
    heard = onward(heard, rows);
    if (layer <= LAYERS) reach.push(heard[asking]);
    if (all === null && heard.every((row, i) => count(row) === wanted(i))) all = layer;
  }
  let blocks = 0;
  for (let top = 0; top < n; top += BLOCK) {
    for (let left = 0; left < n; left += BLOCK) {
      if (rows.slice(top, top + BLOCK).some((row) => row.slice(left, left + BLOCK).some(Boolean))) blocks += 1;
    }
  }
  const pairs = rows.reduce((sum, row) => sum + count(row), 0);
  return { n, causal, pairs, blocks, allBlocks: Math.ceil(n / BLOCK) ** 2, reach, all };
}

function sentences(told) {
  const share = Math.round((100 * told.pairs) / told.n ** 2);
  const everybody = told.causal ? "each position is reached by all before it" : "each position is reached by all";
  return [
    `${told.pairs} of ${told.n ** 2} pairs, ${share}%`,
    `${told.blocks} of ${told.allBlocks} blocks of ${BLOCK} × ${BLOCK} contain an allowed pair`,
    told.all === null ? `some never reach each other, in any number of layers` : `after ${told.all} ${told.all === 1 ? "layer" : "layers"} ${everybody}`,
  ];
}

function render({ model, el }) {
  const n = model.get("n");
  const parse = (lines) => lines.map((line) => [...line].map((sign) => sign === "1"));
  let rows = parse(model.get("rows"));
  let asking = model.get("asking");
  let at = [asking, 0]; // the cell that the keyboard is at; column −1 is the row's name
  let painting = null; // while the button is down: whether it allows or forbids, and where it was last

  const root = make("div", { class: "pattern-pad" });
  const presets = make("div", { class: "pp-presets", role: "group", "aria-label": "Patterns to begin with" });
  const grid = make("div", { class: "pp-grid", role: "grid", "aria-label": "Who may attend to whom; rows: queries; columns: keys" });
  grid.style.gridTemplateColumns = `2.7em repeat(${n}, minmax(0, 1fr))`;
  const cells = [];
  const names = [];
  const head = make("div", { role: "row", class: "pp-row" }, make("span", { role: "columnheader", class: "pp-name" }, "query"));
  for (let j = 0; j < n; j++) head.append(make("span", { role: "columnheader", class: "pp-name" }, `${j + 1}`));
  grid.append(head);
  for (let i = 0; i < n; i++) {
    const row = make("div", { role: "row", class: "pp-row" });
    const name = make("span", { role: "rowheader", class: "pp-name pp-asks", tabindex: "-1", "data-i": i, "data-j": -1 });
    row.append(name);
    names.push(name);
    cells.push([]);
    for (let j = 0; j < n; j++) {
      const cell = make("span", { role: "gridcell", tabindex: "-1", "data-i": i, "data-j": j });
      cells[i].push(cell);
      row.append(cell);
    }
    grid.append(row);
  }
  const numbers = make("ul", { class: "pp-numbers" });
  const reach = make("div", { class: "pp-reach", role: "img" });
  const status = make("p", { class: "pp-status", role: "status" });
  const keys = make("p", { class: "pp-keys" },
    "Rows: queries; columns: keys. Click or drag to allow and forbid; click a row's number to choose who asks. Keys: arrows move, space allows or forbids, A lets this row ask.");
  root.append(presets, make("div", { class: "pp-body" }, grid, make("div", { class: "pp-told" }, numbers, reach, status)), keys);
  el.replaceChildren(root);

  const buttons = new Map();
  for (const name of Object.keys(model.get("presets"))) {
    const button = make("button", { type: "button", "aria-pressed": "false" }, name);
    button.addEventListener("click", () => change(parse(model.get("presets")[name]), `Pattern: ${name}.`));
    presets.append(button);
    buttons.set(name, button);
  }
  const cut = make("button", { type: "button", class: "pp-cut" }, "cut off the future");
  cut.addEventListener("click", () =>
    change(rows.map((row, i) => row.map((allowed, j) => allowed && j <= i)), "All later keys are forbidden."));
  presets.append(cut);

  function change(to, said) {
    rows = to;
    model.set("rows", rows.map((row) => row.map((allowed) => (allowed ? "1" : "0")).join("")));
    model.save_changes();
    draw(said);
  }

  function ask(i) {
    asking = i;
    model.set("asking", i);
    model.save_changes();
    draw(`Position ${i + 1} asks.`);
  }

  function set(i, j, allowed) {
    stroke([i, j], [i, j], allowed);
  }

  // All cells on the way: a quick pointer is not reported at each of them.
  function stroke([a, b], [i, j], allowed) {
    const to = rows.map((row) => [...row]);
    const steps = Math.max(1, Math.abs(i - a), Math.abs(j - b));
    for (let k = 0; k <= steps; k++) {
      to[Math.round(a + ((i - a) * k) / steps)][Math.round(b + ((j - b) * k) / steps)] = allowed;
    }
    change(to, `Query ${i + 1}, key ${j + 1}: ${allowed ? "allowed" : "forbidden"}.`);
  }

  function element([i, j]) {
    return j < 0 ? names[i] : cells[i][j];
  }

  function go(to, focus = true) {
    element(at).tabIndex = -1;
    at = to;
    element(at).tabIndex = 0;
    if (focus) element(at).focus();
  }

  function place(target) {
    const found = target?.closest?.("[data-i]");
    return found && grid.contains(found) ? [Number(found.dataset.i), Number(found.dataset.j)] : null;
  }

  grid.addEventListener("pointerdown", (event) => {
    const found = place(event.target);
    if (!found || event.button) return;
    event.preventDefault();
    go(found);
    if (found[1] < 0) return ask(found[0]);
    painting = { allowed: !rows[found[0]][found[1]], from: found };
    set(...found, painting.allowed);
  });
  grid.addEventListener("pointermove", (event) => {
    if (painting === null) return;
    if (!event.buttons) return void (painting = null);
    const found = place(document.elementFromPoint(event.clientX, event.clientY) ?? event.target);
    if (!found || found[1] < 0 || found.join() === painting.from.join()) return;
    stroke(painting.from, found, painting.allowed);
    painting.from = found;
  });
  for (const end of ["pointerup", "pointercancel", "pointerleave"]) grid.addEventListener(end, () => (painting = null));

  // Not our keys alone move the focus: a screen reader does, too.
  grid.addEventListener("focusin", (event) => {
    const found = place(event.target);
    if (found) go(found, false);
  });
  grid.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const [i, j] = at;
    const moves = { ArrowUp: [i - 1, j], ArrowDown: [i + 1, j], ArrowLeft: [i, j - 1], ArrowRight: [i, j + 1], Home: [i, 0], End: [i, n - 1] };
    if (event.key in moves) {
      const [a, b] = moves[event.key];
      go([Math.min(n - 1, Math.max(0, a)), Math.min(n - 1, Math.max(-1, b))]);
    } else if (event.key === " " || event.key === "Enter") {
      if (j < 0) ask(i);
      else set(i, j, !rows[i][j]);
    } else if (event.key === "a" || event.key === "A") ask(i);
    else return;
    event.preventDefault();
  });
  // In JupyterLab, keys that reach the notebook would move it.
  root.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey || event.altKey)) event.stopPropagation();
  });

  function draw(said) {
    const told = facts(rows, asking);
    for (let i = 0; i < n; i++) {
      names[i].textContent = i === asking ? `▸${i + 1}` : `${i + 1}`;
      names[i].setAttribute("aria-label", `query ${i + 1}${i === asking ? ", asks" : ""}`);
      names[i].parentElement.classList.toggle("pp-asking", i === asking);
      for (let j = 0; j < n; j++) {
        cells[i][j].classList.toggle("pp-allowed", rows[i][j]);
        cells[i][j].setAttribute("aria-selected", rows[i][j]);
        cells[i][j].setAttribute("aria-label", `query ${i + 1}, key ${j + 1}: ${rows[i][j] ? "allowed" : "forbidden"}`);
      }
    }
    const now = model.get("rows").join();
    for (const [name, button] of buttons) button.setAttribute("aria-pressed", model.get("presets")[name].join() === now);
    numbers.replaceChildren(...sentences(told).map((sentence) => make("li", {}, sentence)));
    const counts = told.reach.map((row) => row.filter(Boolean).length);
    reach.setAttribute("aria-label", `Position ${asking + 1} has a receptive field of ${counts.map((count, k) => `${count} after ${k + 1}`).join(", ")} layers`);
    reach.replaceChildren(
      make("p", {}, `Receptive field of position ${asking + 1}, after 1 to ${LAYERS} layers`),
      ...told.reach.map((row, k) => {
        const strip = make("div", { class: "pp-strip" }, make("span", { class: "pp-layer" }, `after ${k + 1}`));
        row.forEach((heard, j) => strip.append(make("span", { class: `pp-dot${heard ? " pp-heard" : ""}${j === asking ? " pp-self" : ""}` })));
        strip.append(make("span", { class: "pp-count" }, `${counts[k]} of ${n}`));
        return strip;
      }),
    );
    if (said) status.textContent = `${said} ${sentences(told)[0]}.`;
  }

  const again = () => {
    rows = parse(model.get("rows"));
    asking = model.get("asking");
    draw();
  };
  model.on("change:rows", again);
  model.on("change:asking", again);
  go(at, false);
  draw();
  return () => {
    model.off("change:rows", again);
    model.off("change:asking", again);
  };
}

export default { render };
