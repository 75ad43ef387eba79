// Draws what attention_viewer (viewer.py) has packed. It is all here: nothing is asked of a kernel or of the network.

const MOST_LINES = 1000; // of a whole head; a token in focus always has all of its own
const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children; attributes that are null are left out. */
function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Whole percents as viewer.py rounds them. Zero alone means that nothing goes there. */
function percent(weight) {
  const whole = Math.floor(100 * weight + 0.5);
  return weight > 0 && whole === 0 ? "<1\u00a0%" : `${whole}\u00a0%`;
}

const tabStop = (group) => group.querySelector("[tabindex='0']");

/** Of a group of elements one is a stop for the Tab key, and arrow keys move on from it. */
function rove(from, to) {
  from.tabIndex = -1;
  to.tabIndex = 0;
  to.focus();
}

/** Whether it is drawn: told by the percentages that the reader sees. */
const reaches = (weight, least) => weight > 0 && Math.floor(100 * weight + 0.5) >= Math.round(100 * least);

const escaped = (text) => text.replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);

/** One model's weights of one kind: bytes, each so many 255ths of its row's top, and the tops, in 65,535ths. */
class Table {
  constructor(bytes, offset, [layers, heads], queries, keys) {
    Object.assign(this, { layers, heads, queries, keys });
    // Where there are several heads, their mean stands behind the last.
    const rows = layers * (heads > 1 ? heads + 1 : 1) * queries;
    this.end = offset + 2 * rows + rows * keys;
    this.tops = new DataView(bytes.buffer, bytes.byteOffset + offset, 2 * rows);
    this.levels = bytes.subarray(offset + 2 * rows, this.end);
  }

  /** A function (query, key) -> weight. `head` null is the mean; what the model has not is taken as its last. */
  map(layer, head) {
    const [i, j] = this.place(layer, head);
    const first = (i * (this.heads > 1 ? this.heads + 1 : 1) + (j ?? this.heads)) * this.queries;
    return (query, key) => {
      const row = first + query;
      return this.levels[row * this.keys + key] * (Math.max(this.tops.getUint16(2 * row, true), 1) / 65535 / 255);
    };
  }

  place(layer, head) {
    const mean = head === null || head === undefined;
    return [Math.min(layer, this.layers - 1), mean && this.heads > 1 ? null : Math.min(head ?? 0, this.heads - 1)];
  }

  called(layer, head) {
    const [i, j] = this.place(layer, head);
    return this.layers * this.heads === 1 ? "" : `layer ${i}, ${j === null ? "mean of the heads" : `head ${j}`}`;
  }
}

async function unpack(model) {
  const stream = new Blob([model.get("packed")]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let offset = 0;
  return model.get("content").kinds.map((kind) =>
    kind.shapes.map((shape) => {
      const table = new Table(bytes, offset, shape, kind.queries.length, kind.keys.length);
      offset = table.end;
      return table;
    }),
  );
}

/** What to call a token: with its place, where another one looks the same. */
const called = (tokens, i) =>
  `“${tokens[i]}”${tokens.indexOf(tokens[i]) === tokens.lastIndexOf(tokens[i]) ? "" : ` (${i + 1})`}`;

async function render({ model, el }) {
  const { title, models, kinds, colours } = model.get("content");
  const tables = await unpack(model);
  const set = (name, value) => {
    model.set(name, value);
    model.save_changes();
  };
  let at = null; // [side, index] of the token in focus
  let kind, panels;
  const name = title || "Attention";

  // The frame, which stays

  const select = (label, chosen) => {
    const box = make("select", { "aria-label": label });
    box.addEventListener("change", () => chosen(box.value));
    return { box, label: make("label", {}, label, box) };
  };
  const kindBox = select("Attention", (value) => set("kind", value));
  kindBox.box.append(...kinds.map((each) => make("option", { value: each.name }, each.label)));
  const layerBox = select("Layer", (value) => set("layer", Number(value)));
  const headBox = select("Head", (value) => set("head", value === "mean" ? null : Number(value)));
  const all = make("button", { type: "button", class: "av-plain" });
  all.addEventListener("click", () => set("view", model.get("view") === "all" ? "one" : "all"));
  const range = make("input", { type: "range", min: 0, max: 100, step: 1, "aria-label": "Hide weights below" });
  range.addEventListener("input", () => set("threshold", Number(range.value) / 100));
  const shownLeast = make("span", { "aria-hidden": "true" }); // the slider says it by itself
  const rangeLabel = make("label", {}, "Hide below", range, shownLeast);
  const save = (label, what) => {
    const button = make("button", { type: "button", class: "av-plain", "aria-label": `Save as ${label}` }, label);
    button.addEventListener("click", what);
    return button;
  };
  const controls = make(
    "div", { class: "av-controls", role: "group", "aria-label": "Controls" },
    kindBox.label, layerBox.label, headBox.label, all, rangeLabel,
    make("span", { class: "av-save" }, "Save", save("SVG", saveSvg), save("PNG", savePng)),
  );
  const place = make("div", { class: "av-panels" });
  const status = make("p", { class: "av-status", role: "status" });
  const note = make("p", { class: "av-note" });
  const numbers = make("div", { class: "av-table", tabindex: "0", role: "region", "aria-label": "Table of numbers" });
  const details = make("details", {}, make("summary", {}, "Numbers of the token in focus"), numbers);
  details.addEventListener("toggle", () => point(at));
  const root = make("div", { class: "attention-viewer", role: "group", "aria-label": `Attention viewer: ${name}` });
  if (title) root.append(make("p", { class: "av-title" }, title));
  root.append(controls, place, status, note, details);
  // JupyterLab would move between cells, too. Its shortcuts with Ctrl and the like go on to it.
  root.addEventListener("keydown", (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.altKey) event.stopPropagation();
  });
  el.append(root);

  // One head: two lists of tokens, and lines between them

  function onePanel(table, number) {
    const map = table.map(model.get("layer"), model.get("head"));
    const rows = Math.max(table.queries, table.keys);
    const row = rows > 64 ? 15 : rows > 32 ? 18 : 24;
    const list = (side, tokens, sideName) => {
      const what = side === "query" ? "look" : "are looked at";
      const box = make("ul", {
        class: `av-tokens av-${side === "query" ? "queries" : "keys"}`, role: "listbox",
        "aria-label": [models[number], `${sideName} that ${what}`].filter(Boolean).join(", "),
      });
      box.append(...tokens.map((token, i) => make(
        "li", { role: "option", tabindex: i ? -1 : 0, "aria-selected": "false",
          "aria-label": `${token}, ${i + 1} of ${tokens.length}`, "data-side": side, "data-index": i },
        make("span", { class: "av-word", title: token }, token), make("span", { class: "av-share" }),
      )));
      return box;
    };
    const lines = document.createElementNS(SVG, "svg");
    for (const [key, value] of Object.entries({
      class: "av-lines", "aria-hidden": "true", viewBox: `0 0 100 ${rows * row}`, preserveAspectRatio: "none",
      style: `height: ${rows * row}px; stroke: ${colour(number)}`,
    })) lines.setAttribute(key, value);
    const [left, right] = [list("query", kind.queries, kind.sides[0]), list("key", kind.keys, kind.sides[1])];
    const pair = make("div", { class: "av-pair", style: `--row: ${row}px` },
      make("span", { class: "av-side" }, `${kind.sides[0]} look`),
      make("span", { class: "av-side" }, `at ${kind.sides[1]}`), left, lines, right);
    const box = make(
      "div", { class: "av-panel", role: "group", "aria-label": models[number] || "Weights" }, ...heading(table, number),
      make("div", { class: "av-scroll" }, pair),
    );
    const onToken = (happens, act) => box.addEventListener(happens, (event) => {
      const option = event.target.closest("[role=option]");
      if (option) act(option, event);
    });
    onToken("pointerover", (option) => point(whose(option)));
    onToken("focusin", (option) => point(whose(option)));
    onToken("click", pin);
    onToken("keydown", (option, event) => moveToken(option, event, [left, right]));
    box.addEventListener("pointerleave", () => point(pinned()));
    return {
      table, map, box, number,
      edges: { drawn: [], n: 0 },
      point(focus) {
        const chosen = focus ? linesOf(map, focus) : this.edges.drawn;
        lines.innerHTML = chosen.map(([i, j, weight]) => line(
          [0, 100], [(i + 0.5) * row, (j + 0.5) * row], weight, focus,
        )).join("");
        for (const item of pair.querySelectorAll("[role=option]")) {
          const [side, i] = whose(item);
          const here = same(focus, [side, i]);
          item.classList.toggle("av-here", here);
          item.setAttribute("aria-selected", String(here && same(focus, pinned())));
          item.lastChild.textContent = focus && focus[0] !== side ? percent(between(map, focus, i)) : "";
        }
      },
    };
  }

  // A token is [side, index]: of the queries, which look, or of the keys, which are looked at.

  const whose = (option) => [option.dataset.side, Number(option.dataset.index)];
  const same = (token, other) => String(token) === String(other);
  const between = (map, [side, index], i) => (side === "query" ? map(index, i) : map(i, index));
  const listsOf = ([side]) => (side === "query" ? [kind.queries, kind.keys] : [kind.keys, kind.queries]);
  const pinned = () => {
    const token = model.get("pinned");
    return token?.length && token[1] < listsOf(token)[0].length ? token : null;
  };

  function pin(option) {
    set("pinned", same(pinned(), whose(option)) ? [] : whose(option));
  }

  function moveToken(option, event, [left, right]) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const here = option.parentNode;
    const i = Number(option.dataset.index);
    const goal = {
      ArrowDown: [here, i + 1], ArrowUp: [here, i - 1], Home: [here, 0], End: [here, Infinity],
      ArrowLeft: [left, i], ArrowRight: [right, i],
    }[event.key];
    if (goal) {
      const [list, index] = goal;
      rove(tabStop(list), list.children[Math.max(0, Math.min(index, list.children.length - 1))]);
    } else if (event.key === "Enter" || event.key === " ") pin(option);
    else if (event.key === "Escape") set("pinned", []);
    else return;
    event.preventDefault();
  }

  const colour = (number) => `light-dark(${colours[number].join()})`;

  const line = (xs, ys, weight, strong) =>
    `<line x1="${xs[0]}" x2="${xs[1]}" y1="${ys[0]}" y2="${ys[1]}" vector-effect="non-scaling-stroke" ` +
    `stroke-width="${(0.8 + 5.2 * weight).toFixed(2)}" ` +
    `stroke-opacity="${(strong ? 0.5 + 0.5 * weight : 0.15 + 0.85 * weight).toFixed(3)}"/>`;

  /** [query, key, weight] of each line that the token in focus has. */
  function linesOf(map, focus) {
    const [side, index] = focus;
    const pair = (i) => (side === "query" ? [index, i] : [i, index]);
    const lines = listsOf(focus)[1].map((_, i) => [...pair(i), between(map, focus, i)]);
    return lines.filter(([, , weight]) => reaches(weight, model.get("threshold")));
  }

  /** The head's lines, the strongest where there are too many, weak ones first so that strong ones lie on them. */
  function allLines(table, map, threshold) {
    const found = [];
    for (let i = 0; i < table.queries; i++) {
      for (let j = 0; j < table.keys; j++) {
        const weight = map(i, j);
        if (reaches(weight, threshold)) found.push([i, j, weight]);
      }
    }
    found.sort((a, b) => a[2] - b[2]);
    return { drawn: found.slice(-MOST_LINES), n: found.length };
  }

  function heading(table, number) {
    const which = model.get("view") === "all" ? "" : table.called(model.get("layer"), model.get("head"));
    const words = [models[number], which].filter(Boolean).join(" · ");
    if (!words) return [];
    const swatch = make("span", { class: "av-swatch", style: `background: ${colour(number)}` });
    return [make("p", { class: "av-name" }, ...(models.length > 1 ? [swatch] : []), words)];
  }

  // All heads: a small picture each

  function allPanel(table, number) {
    const cells = [];
    const dark = getComputedStyle(root).colorScheme === "dark";
    const grid = make("div", {
      class: "av-grid", role: "group", "aria-label": [models[number], "all heads"].filter(Boolean).join(": "),
      style: `grid-template-columns: max-content repeat(${table.heads}, minmax(0, 5.2em))`,
    });
    grid.append(make("span", {}, "head"));
    for (let j = 0; j < table.heads; j++) grid.append(make("span", { class: "av-top" }, `${j}`));
    for (let i = 0; i < table.layers; i++) {
      grid.append(make("span", {}, `layer ${i}`));
      for (let j = 0; j < table.heads; j++) {
        const canvas = painted(table, table.map(i, j), colours[number][Number(dark)]);
        const here = same(table.place(model.get("layer"), model.get("head")), [i, j]);
        const cell = make("button", {
          type: "button", class: "av-cell", tabindex: -1, "aria-current": here ? "true" : null,
          "aria-label": `layer ${i}, head ${j}`,
        }, canvas);
        const tell = () => (status.textContent = `Layer ${i}, head ${j}: ${gist(table, table.map(i, j))}`);
        cell.addEventListener("pointerenter", tell);
        cell.addEventListener("focus", tell);
        cell.addEventListener("click", () => {
          set("view", "one");
          set("layer", i);
          set("head", j);
          place.querySelector("[role=option]").focus();
        });
        cells.push(cell);
        grid.append(cell);
      }
    }
    (cells.find((cell) => cell.hasAttribute("aria-current")) ?? cells[0]).tabIndex = 0;
    grid.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -table.heads, ArrowDown: table.heads }[event.key];
      if (!step) return;
      event.preventDefault();
      const next = cells[cells.indexOf(event.target) + step];
      if (next) rove(event.target, next);
    });
    const [queries, keys] = kind.sides;
    const key = `In each head, rows are the ${queries} that look, ` +
      `columns ${queries === keys ? "those" : `the ${keys}`} that are looked at.`;
    const box = make("div", { class: "av-panel", role: "group", "aria-label": models[number] || "All heads" },
      ...heading(table, number), grid, make("p", { class: "av-note" }, key));
    return { table, number, box, cells };
  }

  /** Darker for more; the root of the weight, so that small ones are seen. */
  function painted(table, map, colour) {
    const canvas = make("canvas", { width: table.keys, height: table.queries, "aria-hidden": "true" });
    const context = canvas.getContext("2d");
    const image = context.createImageData(canvas.width, canvas.height);
    const parts = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
    for (let i = 0, byte = 0; i < canvas.height; i++) {
      for (let j = 0; j < canvas.width; j++) {
        for (const part of parts) image.data[byte++] = part;
        image.data[byte++] = 255 * Math.sqrt(map(i, j));
      }
    }
    context.putImageData(image, 0, 0);
    return canvas;
  }

  /** A head in one sentence. */
  function gist(table, map) {
    let sum = 0, looking = 0, best = [0, 0, 0];
    for (let i = 0; i < table.queries; i++) {
      let top = [i, 0, 0];
      for (let j = 0; j < table.keys; j++) if (map(i, j) > top[2]) top = [i, j, map(i, j)];
      if (top[2] > best[2]) best = top;
      sum += top[2];
      looking += top[2] > 0;
    }
    return `${called(kind.queries, best[0])} looks at ${called(kind.keys, best[1])} with ${percent(best[2])}, ` +
      `its largest weight; a query gives its first choice ${percent(sum / Math.max(1, looking))} on average.`;
  }

  // What is in focus

  function point(focus) {
    at = focus;
    if (model.get("view") === "all") return;
    for (const panel of panels) panel.point(focus);
    if (!focus) {
      status.textContent = "Point at a token, or go to one with Tab and arrow keys; click or Enter keeps it in focus.";
    } else {
      const [side, index] = focus;
      const [mine, others] = listsOf(focus);
      const told = panels.map(({ table, map, number }) => {
        const found = linesOf(map, focus).sort((a, b) => b[2] - a[2]);
        const named = found.slice(0, 6).map(([i, j, w]) => `${called(others, side === "query" ? j : i)} ${percent(w)}`);
        const more = found.length > 6 ? ` and ${found.length - 6} more` : "";
        const any = others.some((_, i) => between(map, focus, i) > 0);
        const none = any ? `nothing with ${percent(model.get("threshold"))} or more` : "nothing";
        return (named.join(", ") + more || none) + (models[number] ? ` (${models[number]})` : "");
      });
      const verb = side === "query" ? "looks at" : "is looked at by";
      status.textContent = `${called(mine, index)} ${verb} ${told.join("; ")}.`;
    }
    if (details.open) numbers.replaceChildren(tableOf(focus));
  }

  function tableOf(focus) {
    if (!focus) return make("p", {}, "No token is in focus.");
    const [side, index] = focus;
    const [mine, others] = listsOf(focus);
    const head = models.map((each) => make("th", { scope: "col" }, each || "weight"));
    return make("table", {},
      make("caption", {}, `${called(mine, index)} ${side === "query" ? "looks at" : "is looked at by"}`),
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, kind.sides[side === "query" ? 1 : 0]), ...head)),
      make("tbody", {}, ...others.map((token, i) => make("tr", {}, make("th", { scope: "row" }, called(others, i)),
        ...panels.map(({ map }) => make("td", {}, percent(between(map, focus, i))))))));
  }

  // Drawing all of it anew: when a control moved

  function draw() {
    const index = Math.max(0, kinds.findIndex((each) => each.name === model.get("kind")));
    kind = kinds[index];
    const every = model.get("view") === "all";
    const [layers, heads] = [0, 1].map((axis) => Math.max(...kind.shapes.map((shape) => shape[axis])));
    const fill = ({ box, label }, n, value, more = []) => {
      box.replaceChildren(...Array.from({ length: n }, (_, i) => make("option", { value: i }, `${i}`)), ...more);
      box.value = value === null ? "mean" : Math.min(value, n - 1);
      label.hidden = every || n < 2;
    };
    kindBox.box.value = kind.name;
    kindBox.label.hidden = kinds.length < 2;
    fill(layerBox, layers, model.get("layer"));
    fill(headBox, heads, model.get("head") ?? null, [make("option", { value: "mean" }, "mean")]);
    all.hidden = layers * heads < 2;
    all.textContent = every ? "One head" : "All heads";
    rangeLabel.hidden = every;
    details.hidden = every;
    panels = tables[index].map(every ? allPanel : onePanel);
    const focused = place.contains(document.activeElement) && document.activeElement.dataset;
    const scrolled = place.querySelector(".av-scroll")?.scrollTop ?? 0;
    place.replaceChildren(...panels.map((panel) => panel.box));
    for (const box of place.querySelectorAll(".av-scroll")) box.scrollTop = scrolled;
    if (every) status.textContent = "Point at a head, or go to one with Tab and arrow keys; click or Enter opens it.";
    at = pinned();
    hide();
    if (focused?.side) { // the element that had the focus is gone: its successor takes it
      const option = place.querySelector(`[data-side=${focused.side}][data-index="${focused.index}"]`);
      if (option) rove(tabStop(option.parentNode), option);
    }
  }

  /** The threshold has moved: other lines, the same tokens. */
  function hide() {
    const least = model.get("threshold");
    const every = model.get("view") === "all";
    range.value = Math.round(100 * least);
    range.setAttribute("aria-valuetext", percent(least));
    shownLeast.textContent = percent(least);
    if (!every) for (const panel of panels) panel.edges = allLines(panel.table, panel.map, least);
    note.textContent = [every ? "" : drawnOf(), kind.note].filter(Boolean).join(" ");
    point(at);
  }

  const drawnOf = () => panels.map(({ edges, table, number }) => {
    const more = edges.n > MOST_LINES ? `the strongest ${MOST_LINES} of ` : "";
    const whose = models[number] ? `${models[number]}: ` : "";
    return `${whose}${more}${edges.n} of ${table.queries * table.keys} weights are drawn.`;
  }).join(" ");

  // Saving: the whole picture, whatever of it is scrolled out of sight, dark on white

  const text = (x, y, words, more = "") => `<text x="${x}" y="${y}" ${more}>${escaped(words)}</text>`;

  function picture() {
    const every = model.get("view") === "all";
    const parts = [text(20, 28, name, 'font-size="17" font-weight="600"'), text(20, 46, kind.label, 'fill="#595959"')];
    let x = 20, bottom = 0;
    for (const panel of panels) {
      const which = every ? "" : panel.table.called(model.get("layer"), model.get("head"));
      parts.push(text(x, 62, [models[panel.number], which].filter(Boolean).join(" · "), 'font-weight="600"'));
      const [width, height] = (every ? pictureOfAll : pictureOfOne)(panel, x, parts);
      x += width;
      bottom = Math.max(bottom, height);
    }
    for (const sentence of kind.note.split(/(?<=\.) /).filter(Boolean)) {
      parts.push(text(20, (bottom += 14), sentence, 'fill="#595959" font-size="10"'));
    }
    const said = `${kind.label}. ${every ? "All heads." : status.textContent} ${kind.note}`.trim();
    // A letter is at most so wide: what is written across the picture has room.
    const width = Math.max(x, 40 + 11 * name.length, ...kind.note.split(/(?<=\. )/).map((each) => 40 + 5.5 * each.length));
    const height = bottom + 14;
    const svg = `<svg xmlns="${SVG}" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img" ` +
      `font-family="system-ui, sans-serif" font-size="13" fill="#1b1b1b"><title>${escaped(name)}</title>` +
      `<desc>${escaped(said)}</desc><rect width="100%" height="100%" fill="#ffffff"/>${parts.join("\n")}</svg>`;
    return { svg, width, height };
  }

  function pictureOfAll({ table, number, cells }, x, parts) {
    for (const at of cells.keys()) {
      const [i, j] = [Math.floor(at / table.heads), at % table.heads];
      const place = `x="${x + 60 + 70 * j}" y="${84 + 70 * i}" width="64" height="64"`;
      const data = painted(table, table.map(i, j), colours[number][0]).toDataURL();
      parts.push(`<rect ${place} fill="none" stroke="#6b6b6b"/>`);
      parts.push(`<image ${place} preserveAspectRatio="none" style="image-rendering: pixelated" href="${data}"/>`);
      if (i === 0) parts.push(text(x + 92 + 70 * j, 80, `head ${j}`, 'text-anchor="middle" font-size="11"'));
      if (j === 0) parts.push(text(x, 120 + 70 * i, `layer ${i}`, 'font-size="11"'));
    }
    return [90 + 70 * table.heads, 84 + 70 * table.layers];
  }

  function pictureOfOne({ table, map, number, edges }, x, parts) {
    const row = 18;
    const y = (i) => 90 + (i + 0.5) * row;
    const drawn = at ? linesOf(map, at) : edges.drawn;
    const lines = drawn.map(([i, j, weight]) => line([x + 174, x + 346], [y(i), y(j)], weight, at));
    parts.push(`<g stroke="${colours[number][0]}">${lines.join("")}</g>`);
    const sides = [
      ["query", kind.queries, x + 170, x + 34, 'text-anchor="end"', `${kind.sides[0]} look`],
      ["key", kind.keys, x + 350, x + 486, 'text-anchor="start"', `at ${kind.sides[1]}`],
    ];
    for (const [side, tokens, inner, outer, anchor, words] of sides) {
      parts.push(text(inner, 82, words, `${anchor} fill="#595959" font-size="11"`));
      for (const [i, token] of tokens.entries()) {
        const short = token.length > 16 ? `${token.slice(0, 15)}…` : token;
        parts.push(text(inner, y(i) + 4, short, anchor + (same(at, [side, i]) ? ' text-decoration="underline"' : "")));
        if (at && at[0] !== side) parts.push(text(outer, y(i) + 4, percent(between(map, at, i)), anchor));
      }
    }
    return [540, 96 + row * Math.max(table.queries, table.keys)];
  }

  function download(blob, ending) {
    const file = title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "") || "attention";
    const link = make("a", { href: URL.createObjectURL(blob), download: `${file}.${ending}` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  function saveSvg() {
    download(new Blob([picture().svg], { type: "image/svg+xml" }), "svg");
  }

  async function savePng() {
    const { svg, width, height } = picture();
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
    await image.decode();
    const canvas = make("canvas", { width: 2 * width, height: 2 * height });
    canvas.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height);
    canvas.toBlob((blob) => download(blob, "png"), "image/png");
  }

  const heard = { kind: draw, view: draw, layer: draw, head: draw, threshold: hide, pinned: () => point(pinned()) };
  for (const [trait, act] of Object.entries(heard)) model.on(`change:${trait}`, act);
  draw();
  return () => Object.entries(heard).forEach(([trait, act]) => model.off(`change:${trait}`, act));
}

export default { render };
