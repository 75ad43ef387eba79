// Asks drills (drill.py): in a notebook a round that the kernel has chosen (practice.py), in the web book all of a course,
// in the order of Leitner's boxes (leitner.py), which the browser keeps. A plain script: a page from a folder loads it, too.
const practice = (() => {
  function make(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }

  function button(words, pressed, attributes = {}) {
    const node = make("button", { type: "button", ...attributes }, words);
    node.addEventListener("click", pressed);
    return node;
  }

  /** Text with `backticks` as code, as the cards have it. */
  function said(text) {
    const parts = text.split("`");
    if (parts.length % 2 === 0) return [text];
    return parts.map((part, i) => (i % 2 ? make("code", {}, part) : part));
  }

  /** What is looked at, as a table: ✓ and nothing for a mask, else numbers; the more, the darker. */
  function grid(rows) {
    const cells = (row) =>
      row.map((value) => {
        const mask = typeof value === "boolean";
        const strength = Math.min(1, Math.max(0, Number(value)));
        const cell = make("td", {}, mask ? (value ? "✓" : "") : value.toFixed(2));
        cell.style.setProperty("--strength", `${Math.round(mask ? 45 * strength : 60 * strength)}%`);
        return cell;
      });
    const numbers = rows[0].map((_, i) => make("th", { scope: "col" }, String(i + 1)));
    return make(
      "div",
      { class: "pr-scroll", tabindex: "0", role: "region", "aria-label": "The table" },
      make(
        "table",
        { class: "pr-grid" },
        make("caption", {}, "a row for each query, a column for each key"),
        make("thead", {}, make("tr", {}, make("td", {}), ...numbers)),
        make("tbody", {}, ...rows.map((row, i) => make("tr", {}, make("th", { scope: "row" }, String(i + 1)), ...cells(row)))),
      ),
    );
  }

  function verdictOf({ score, aspects }) {
    const lines = aspects.map(([ok, name, message]) =>
      make(
        "li",
        { class: ok ? "pr-ok" : "pr-fault" },
        make("span", { class: "pr-mark", "aria-hidden": "true" }, ok ? "✓" : "✗"),
        make("strong", {}, name),
        make("span", { class: "pr-hidden" }, ok ? ", right" : ", wrong"),
        ": ",
        ...said(message),
      ),
    );
    return [make("p", {}, `The check gives ${score}:`), make("ul", { class: "pr-verdict" }, ...lines)];
  }

  let cards = 0; // on this page: names of parts must differ

  /**
   * The panel that shows one drill. `show(drill, where, chosen)` shows it, answered already if there is a `chosen`;
   * `answered(place)` hears of the first answer, and `repair`, if there is one, of code to check.
   */
  function panel({ answered, next, repair }) {
    const id = `practice-${(cards += 1)}`;
    const where = make("p", { class: "pr-where" });
    const look = make("div", { class: "pr-look" });
    const question = make("p", { class: "pr-question", id, tabindex: "-1" });
    const options = make("div", { class: "pr-options", role: "group", "aria-labelledby": id });
    const told = make("div", { class: "pr-told", role: "status" });
    const mend = make("div", { class: "pr-mend" });
    const steps = make("div", { class: "pr-steps" }, ...next);
    const root = make("div", { class: "pr-drill" }, where, look, question, options, told, mend, steps);
    // JupyterLab would move between cells, too. Its shortcuts with Ctrl and the like go on to it.
    root.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      event.stopPropagation();
      const choice = options.children[Number(event.key) - 1];
      if (choice && event.target.tagName !== "TEXTAREA") choice.click();
    });
    let chosen = null;
    let shown = null;

    function mark() {
      [...options.children].forEach((node, i) => {
        const sign = chosen === null ? "" : i === shown.right ? "✓ " : i === chosen ? "✗ " : "";
        node.setAttribute("aria-pressed", i === chosen);
        node.setAttribute("aria-disabled", chosen !== null);
        node.classList.toggle("pr-right", chosen !== null && i === shown.right);
        node.firstChild.textContent = `${sign}${i + 1}`;
      });
      mend.replaceChildren();
      if (chosen === null) return told.replaceChildren();
      const right = chosen === shown.right;
      const verdict = right ? "Right." : `No: it is number ${shown.right + 1}.`;
      told.replaceChildren(make("p", {}, make("strong", {}, verdict), " ", ...said(shown.why ?? "")));
      if (shown.verdict) told.append(...verdictOf(shown.verdict));
      if (repair && shown.repair) mend.append(...repairOf(shown));
      else if (shown.mended) told.append(make("p", {}, "The solution has: ", make("code", {}, shown.mended)));
    }

    function repairOf(drill) {
      const box = make("textarea", { class: "pr-code", spellcheck: "false", "aria-label": "The code, to repair", rows: drill.code.split("\n").length + 1, wrap: "off" });
      box.value = drill.code;
      const card = make("div", { class: "pr-card", role: "status" });
      const check = button("Check", () => {
        card.textContent = "Checking …";
        repair(box.value, (html) => (card.innerHTML = html));
      });
      const solved = make("details", {}, make("summary", {}, "Show the line of the solution"), make("code", {}, drill.mended ?? ""));
      return [make("p", {}, make("strong", {}, "Repair it"), " and check:"), box, make("p", {}, check), card, ...(drill.mended ? [solved] : [])];
    }

    function show(drill, words, before = null) {
      shown = drill;
      chosen = before;
      where.textContent = words;
      look.replaceChildren();
      if (drill.code) look.append(make("pre", { tabindex: "0", role: "region", "aria-label": "The code" }, make("code", {}, drill.code)));
      if (drill.table) look.append(grid(drill.table));
      question.textContent = drill.question;
      const isCode = drill.as_code;
      options.replaceChildren(
        ...drill.options.map((option, i) =>
          button("", () => {
            if (chosen !== null) return; // the first answer counts
            chosen = i;
            answered(i);
            mark();
          }),
        ),
      );
      drill.options.forEach((option, i) => {
        options.children[i].replaceChildren(make("span", { class: "pr-number" }, ""), isCode ? make("code", {}, option) : make("span", {}, ...said(option)));
      });
      mark();
    }

    return { root, show, ask: () => question.focus() };
  }

  /** A round in a notebook. The kernel keeps what was answered, and judges what was repaired. */
  function inNotebook({ model, el }) {
    const { drills, note } = model.get("data");
    let at = 0;
    const given = () => model.get("given");
    const back = button("← back", () => go(at - 1));
    const on = button("next →", () => go(at + 1));
    const waiting = new Map();
    const { root, show, ask } = panel({
      next: [back, on],
      answered(place) {
        model.set("given", { ...given(), [at + 1]: place });
        model.save_changes();
        head();
      },
      repair(code, tell) {
        waiting.set(at + 1, tell);
        model.set("repair", { number: at + 1, code, time: Date.now() });
        model.save_changes();
      },
    });
    const count = make("p", { class: "pr-count" });
    el.append(make("div", { class: "practice" }, count, root, make("p", { class: "pr-note" }, note)));

    function head() {
      const answers = Object.entries(given());
      const good = answers.filter(([number, place]) => drills[number - 1].right === place).length;
      count.textContent = `Drill ${at + 1} of ${drills.length}. Right: ${good} of ${answers.length} answered.`;
    }
    function draw() {
      const drill = drills[at];
      head();
      show(drill, drill.where, given()[at + 1] ?? null);
      back.disabled = at === 0;
      on.disabled = at === drills.length - 1;
    }
    function go(to) {
      at = Math.min(Math.max(to, 0), drills.length - 1);
      draw();
      ask();
    }
    const heard = () => {
      const { number, html } = model.get("checked");
      if (number) waiting.get(number)?.(html);
    };
    model.on("change:checked", heard);
    draw();
    return () => model.off("change:checked", heard);
  }

  /** Leitner's boxes, as in leitner.py. */
  const fresh = () => ({ box: 1, due: 0, asked: {} });
  const today = () => {
    const now = new Date();
    return Math.floor((now.getTime() - now.getTimezoneOffset() * 60000) / 86400000);
  };
  function after(card, key, right, days, day) {
    const before = Object.entries(card.asked).filter(([name]) => name !== key);
    const asked = Object.fromEntries([...before, [key, right]]);
    if (right && card.due > day) return { ...card, asked };
    const box = right ? Math.min(card.box + 1, days.length) : 1;
    return { box, due: day + days[box - 1], asked };
  }
  function compare(one, other) {
    const i = one.findIndex((value, place) => value !== other[place]);
    return i < 0 ? 0 : one[i] - other[i];
  }
  /** `times`: how often each was asked since the page was opened. Nobody is asked the same card twice in a row. */
  function inOrder(names, groups, kept, day, times = {}) {
    const seen = new Map();
    const ranked = names.map((name) => {
      const card = kept[name] ?? fresh();
      const rank = [Number(card.due > day), times[name] ?? 0, card.box, Number(!Object.keys(card.asked).length), Math.max(card.due - day, 0)];
      const place = `${rank} ${groups[name]}`;
      seen.set(place, (seen.get(place) ?? -1) + 1);
      return { name, rank: [...rank, seen.get(place)] };
    });
    return ranked.sort((one, other) => compare(one.rank, other.rank)).map(({ name }) => name);
  }
  function nextDrill(drills, card) {
    const order = Object.keys(card.asked);
    const rank = ({ key }) => [key in card.asked ? (card.asked[key] ? 2 : 0) : 1, order.indexOf(key)];
    return [...drills].sort((one, other) => compare(rank(one), rank(other)))[0];
  }

  /** All drills of a course, on a page that needs no kernel. What was answered stays in this browser. */
  function onPage(root, { course, days, lessons, drills }) {
    const place = `practice-${course}`;
    const empty = () => ({ done: [], cards: {} });
    let kept = empty();
    try {
      kept = { ...kept, ...JSON.parse(localStorage.getItem(place) ?? "{}") };
    } catch {} // a browser that keeps nothing for pages from a folder, or keeps something else
    const keep = () => {
      try {
        localStorage.setItem(place, JSON.stringify(kept));
      } catch {}
    };
    const byCard = Map.groupBy ? Map.groupBy(drills, ({ card }) => card) : drills.reduce((all, one) => all.set(one.card, [...(all.get(one.card) ?? []), one]), new Map());
    const groups = Object.fromEntries(drills.map(({ card, assignment }) => [card, assignment]));
    let now = null;
    let times = {};
    let answers = 0;
    let good = 0;

    const open = () => [...byCard.keys()].filter((card) => byCard.get(card)[0].free || kept.done.includes(groups[card]));
    const boxes = lessons.map(({ assignment, title, count }) => {
      const input = make("input", { type: "checkbox", value: assignment });
      input.checked = kept.done.includes(assignment);
      input.addEventListener("change", () => {
        kept.done = inputs.filter((one) => one.checked).map((one) => one.value);
        keep();
        if (!now || !open().includes(now.card)) advance();
        else head();
      });
      return { input, label: make("label", {}, input, ` ${assignment} ${title} `, make("span", { class: "pr-quiet" }, `(${count})`)) };
    });
    const inputs = boxes.map(({ input }) => input);
    const count = make("p", { class: "pr-count", role: "status" });
    const on = button("next →", () => {
      advance();
      ask();
    });
    const { root: card, show, ask } = panel({
      next: [on],
      answered(chosen) {
        const right = chosen === now.right;
        answers += 1;
        good += right;
        kept.cards[now.card] = after(kept.cards[now.card] ?? fresh(), now.key, right, days, today());
        keep();
        head();
      },
    });
    const forget = button("Forget how it went", () => {
      kept = empty();
      try {
        localStorage.removeItem(place);
      } catch {}
      for (const input of inputs) input.checked = false;
      answers = good = 0;
      times = {};
      advance();
      count.textContent = `Forgotten. ${count.textContent}`;
    });
    root.replaceChildren(
      make(
        "details",
        { class: "pr-lessons", ...(kept.done.length ? {} : { open: "" }) },
        make("summary", {}, "Which assignments have you done?"),
        make("p", {}, "Their drills show solved code, so they come only when you tick them. The number of drills is in brackets."),
        make("div", { class: "pr-ticks", role: "group", "aria-label": "Assignments that you have done" }, ...boxes.map(({ label }) => label)),
      ),
      make("div", { class: "practice" }, count, card),
      make("p", { class: "pr-note" }, "How it goes is kept in this browser alone. ", forget),
    );

    function head() {
      const cards = open();
      const due = cards.filter((name) => (kept.cards[name]?.due ?? 0) <= today()).length;
      count.textContent = `Right: ${good} of ${answers} answered. Due today: ${due} of ${cards.length} cards.`;
    }
    function advance() {
      const [name] = inOrder(open(), groups, kept.cards, today(), times);
      now = name === undefined ? null : nextDrill(byCard.get(name), kept.cards[name] ?? fresh());
      if (now) times[name] = (times[name] ?? 0) + 1;
      card.hidden = now === null;
      head();
      if (now) show(now, now.where);
      else count.textContent = "Tick an assignment, and its drills are here.";
    }
    advance();
    document.documentElement.dataset.ready = "true";
  }

  return { inNotebook, onPage, inOrder, nextDrill, after };
})();
