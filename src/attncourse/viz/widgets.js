// Draws what explore and step_through (widgets.py) hold: controls, and of their frames the one that these choose.

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** A control: its element, and what shows a label as chosen. */
function slider({ name, labels }, choose) {
  const range = make("input", { type: "range", min: 0, max: labels.length - 1, step: 1, "aria-label": name });
  const said = make("span", { class: "ex-said", "aria-hidden": "true" }); // the slider says it by itself
  range.addEventListener("input", () => choose(labels[range.value]));
  const show = (label) => {
    range.value = labels.indexOf(label);
    range.setAttribute("aria-valuetext", label);
    said.textContent = label;
  };
  return [make("label", {}, make("span", {}, name), make("span", { class: "ex-choice" }, range, said)), show];
}

function buttons({ name, labels }, choose) {
  const row = labels.map((label) => {
    const button = make("button", { type: "button" }, label);
    button.addEventListener("click", () => choose(label));
    return button;
  });
  const show = (label) => row.forEach((button, i) => button.setAttribute("aria-pressed", labels[i] === label));
  return [make("div", { role: "group", "aria-label": name }, make("span", {}, name), make("span", { class: "ex-choice" }, ...row)), show];
}

function render({ model, el }) {
  const controls = model.get("controls");
  const choose = (which) => (label) => {
    model.set("chosen", model.get("chosen").map((old, i) => (i === which ? label : old)));
    model.save_changes();
  };
  const handles = controls.map((each, which) => (each.slider ? slider : buttons)(each, choose(which)));
  const place = make("div");
  const drawn = new Map();
  const root = make("div", { class: "explorer" }, ...handles.map(([element]) => element), place);
  // JupyterLab would move between cells, too. Its shortcuts with Ctrl and the like go on to it.
  root.addEventListener("keydown", (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.altKey) event.stopPropagation();
  });
  el.append(root);

  function draw() {
    const chosen = model.get("chosen");
    handles.forEach(([, show], i) => show(chosen[i]));
    const at = controls.reduce((sum, { labels }, i) => sum * labels.length + labels.indexOf(chosen[i]), 0);
    if (!drawn.has(at)) {
      drawn.set(at, make("div"));
      drawn.get(at).innerHTML = model.get("frames")[at];
      place.append(drawn.get(at));
    }
    for (const [other, frame] of drawn) frame.hidden = other !== at;
  }
  model.on("change:chosen", draw);
  draw();
  return () => model.off("change:chosen", draw);
}

export default { render };
