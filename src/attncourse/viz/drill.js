// Asks for the shape that a line of code makes (drill.py): draws the tensors, checks the answer, keeps score.

const CELL = 15;
const SHEET = 7; // by how much the next sheet of a pile stands behind

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function svg(tag, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

/** A shape as text, "(2, 3)", "(4,)", "()", and back: null for an error. */
const said = (shape) => `(${shape.join(", ")}${shape.length === 1 ? "," : ""})`;
const shapeOf = (words) => (words.startsWith("(") ? words.match(/\d+/g)?.map(Number) ?? [] : null);

/** A tensor: a row, a table, a pile of tables; with four axes a row of piles. */
function tensor(name, shape, kind) {
  const [piles, sheets, rows, columns] = [...Array(4 - shape.length).fill(1), ...shape];
  const pile = columns * CELL + (sheets - 1) * SHEET;
  const width = piles * pile + (piles - 1) * CELL + 2;
  const height = rows * CELL + (sheets - 1) * SHEET + 2;
  const picture = svg("svg", { width, height, viewBox: `-1 -1 ${width} ${height}`, role: "img", "aria-label": `${name}: shape ${said(shape)}` });
  for (let p = 0; p < piles; p++) {
    for (let s = sheets - 1; s >= 0; s--) {
      for (let r = 0; r < rows; r++) {
        for (let c = 0; c < columns; c++) {
          const x = p * (pile + CELL) + c * CELL + s * SHEET;
          const y = r * CELL + (sheets - 1 - s) * SHEET;
          picture.append(svg("rect", { x, y, width: CELL, height: CELL, class: `sd-${kind}` }));
        }
      }
    }
  }
  return make("figure", {}, picture, make("figcaption", {}, `${name} ${said(shape)}`));
}

function render({ model, el }) {
  const questions = model.get("questions");
  const count = make("p", { class: "sd-count" });
  const board = make("div", { class: "sd-board" });
  const choices = make("div", { class: "sd-choices", role: "group", "aria-label": "Which shape?" });
  const verdict = make("p", { class: "sd-said", role: "status" });
  const step = (words, by) => {
    const button = make("button", { type: "button" }, words);
    button.addEventListener("click", () => set("at", model.get("at") + by));
    return button;
  };
  const back = step("← back", -1);
  const next = step("next →", 1);
  const anew = make("button", { type: "button" }, "start again");
  const root = make("div", { class: "shape-drill" }, count, board, choices, verdict, make("p", { class: "sd-steps" }, back, next, anew));
  // JupyterLab would move between cells, too. Its shortcuts with Ctrl and the like go on to it.
  root.addEventListener("keydown", (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.altKey) event.stopPropagation();
  });
  el.append(root);

  function set(name, value) {
    model.set(name, value);
    model.save_changes();
  }

  function choose(label) {
    const at = model.get("at");
    if (model.get("answers")[at] === "") set("answers", model.get("answers").map((old, i) => (i === at ? label : old))); // the first counts
  }

  anew.addEventListener("click", () => {
    set("answers", questions.map(() => ""));
    set("at", 0);
  });

  function draw() {
    const at = model.get("at");
    const answers = model.get("answers");
    const { shapes, code, choices: labels, right, why } = questions[at];
    const answer = answers[at];
    const given = answers.filter(Boolean).length;
    const good = answers.filter((one, i) => one === questions[i].right).length;
    count.textContent = `Question ${at + 1} of ${questions.length}. Score: ${good} right of ${given} answered.`;

    board.replaceChildren(make("code", {}, code), make("div", { class: "sd-tensors" }, ...shapes.map(([name, shape]) => tensor(name, shape, "given"))));
    if (answer && shapeOf(right)) board.lastChild.append(make("span", { class: "sd-arrow", "aria-hidden": "true" }, "→"), tensor("result", shapeOf(right), "made"));

    // Buttons stay in the page while a question lasts: the keyboard's place is not lost.
    if (choices.dataset.at !== String(at)) {
      choices.dataset.at = at;
      choices.replaceChildren(
        ...labels.map((label) => {
          const button = make("button", { type: "button" }, label);
          button.addEventListener("click", () => choose(label));
          return button;
        }),
      );
    }
    [...choices.children].forEach((button, i) => {
      const label = labels[i];
      button.setAttribute("aria-pressed", label === answer);
      button.setAttribute("aria-disabled", answer !== "");
      const mark = answer && label === right ? "✓ " : answer && label === answer ? "✗ " : "";
      button.textContent = mark + label;
    });
    verdict.textContent = answer === "" ? "Say the shape before you press." : `${answer === right ? "Right" : `No: it is ${right}`}. ${why}`;
    back.disabled = at === 0;
    next.disabled = at === questions.length - 1;
  }

  model.on("change:answers", draw);
  model.on("change:at", draw);
  draw();
  return () => {
    model.off("change:answers", draw);
    model.off("change:at", draw);
  };
}

export default { render };
