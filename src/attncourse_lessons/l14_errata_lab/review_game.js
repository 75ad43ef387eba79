// A game of entries (review_game.py): shows a line, takes a question and a judgement, and keeps score.

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function render({ model, el }) {
  const entries = model.get("entries");
  const questions = model.get("questions");
  const kinds = model.get("kinds");
  const count = make("p", { class: "rg-count" });
  const board = make("div", { class: "rg-board" });
  const verdict = make("div", { class: "rg-said", role: "status" });
  const button = (words, action) => {
    const node = make("button", { type: "button" }, words);
    node.addEventListener("click", action);
    return node;
  };
  const asks = Object.entries(questions).map(([key, words]) => [key, button(words, () => answer("asked", key))]);
  const judges = kinds.map((kind) => [kind, button(kind, () => answer("judged", kind))]);
  const group = (label, pairs) => make("div", { class: "rg-choices", role: "group", "aria-label": label }, make("span", {}, label), ...pairs.map(([, node]) => node));
  const back = button("← back", () => set("at", model.get("at") - 1));
  const next = button("next →", () => set("at", model.get("at") + 1));
  const anew = button("begin anew", () => {
    const nothing = entries.map(() => "");
    set("judged", nothing);
    set("asked", nothing);
    set("at", 0);
  });
  const root = make("div", { class: "review-game" }, count, board, group("1. What do you ask?", asks), group("2. What is it?", judges), verdict, make("p", { class: "rg-steps" }, back, next, anew));
  // JupyterLab would move between cells, too. Its shortcuts with Ctrl and the like go on to it.
  root.addEventListener("keydown", (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.altKey) event.stopPropagation();
  });
  el.append(root);

  function set(name, value) {
    model.set(name, value);
    model.save_changes();
  }

  function answer(name, value) {
    const at = model.get("at");
    if (name === "judged" && !model.get("asked")[at]) return; // first ask, then judge
    if (model.get(name)[at] === "") set(name, model.get(name).map((old, i) => (i === at ? value : old))); // the first counts
  }

  function mark(pairs, given, right, off) {
    for (const [key, node] of pairs) {
      const words = questions[key] ?? key;
      node.setAttribute("aria-pressed", key === given);
      node.setAttribute("aria-disabled", off || given !== "");
      node.textContent = (given === "" || right === null ? "" : key === right ? "✓ " : key === given ? "✗ " : "") + words;
    }
  }

  function draw() {
    const at = model.get("at");
    const asked = model.get("asked");
    const judged = model.get("judged");
    const entry = entries[at];
    const given = judged.filter(Boolean).length; // what was asked has no score: a line may fall to several questions
    const good = judged.filter((one, i) => one === entries[i].kind).length;
    count.textContent = `Line ${at + 1} of ${entries.length}. Score: ${good} right of ${given} judged.`;
    board.replaceChildren(make("p", { class: "rg-claim" }, entry.claim), make("p", { class: "rg-place" }, `${entry.deck}. ${entry.place}`));
    mark(asks, asked[at], null, false);
    mark(judges, judged[at], entry.kind, !asked[at]);
    const lines = [];
    if (asked[at]) {
      if (asked[at] === "loss") lines.push(entry.loss);
      lines.push(`The list asks (${questions[entry.by]}): ${entry.question}`);
      for (const [name, passes, measured] of entry.found) if (name === "as printed" || judged[at]) lines.push(`${passes ? "✓" : "✗"} ${name}: ${measured}`);
    }
    if (judged[at]) {
      lines.push(`${judged[at] === entry.kind ? "Yes" : "The list says"}: ${entry.kind}${entry.slip ? " († it may be a slip of the transcription)" : ""}. ${entry.right}.`);
      if (asked[at] !== "loss") lines.push(`The loss: ${entry.loss}`);
    }
    if (!asked[at]) lines.push("Read the line, and choose the question that you would put first.");
    verdict.replaceChildren(...lines.map((line) => make("p", {}, line)));
    back.disabled = at === 0;
    next.disabled = at === entries.length - 1;
  }

  const names = ["change:asked", "change:judged", "change:at"];
  for (const name of names) model.on(name, draw);
  draw();
  return () => {
    for (const name of names) model.off(name, draw);
  };
}

export default { render };
