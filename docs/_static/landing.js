// The start page's translator: choose a sentence, and watch the translation being written, token by token. It plays once
// by itself, unless the reader prefers that nothing moves, and stops where the reader points at it.
const PACE = 800; // milliseconds a token
for (const place of document.querySelectorAll('.shown[data-shown="translator"]')) {
  const ready = () => document.documentElement.dataset.ready && perform(place);
  if (document.documentElement.dataset.ready) ready();
  else new MutationObserver((_, watch) => (ready(), watch.disconnect()))
    .observe(document.documentElement, { attributeFilter: ["data-ready"] });
}

function perform(place) {
  const pictures = [...place.children];
  const bar = Object.assign(document.createElement("div"), { className: "shown-choices" });
  bar.setAttribute("role", "group");
  bar.setAttribute("aria-label", "Sentence");
  const button = (text, act) => {
    const made = Object.assign(document.createElement("button"), { type: "button", textContent: text });
    made.addEventListener("click", act);
    bar.append(made);
    return made;
  };
  let timer = null, chosen = 0;
  const tokens = () => [...pictures[chosen].querySelectorAll(".av-queries [role=option]")];

  const play = button("Play", () => (timer ? stop() : start()));
  play.classList.add("shown-play");
  const choices = pictures.map((picture, i) => button(picture.querySelector(".av-title").textContent, () => {
    stop();
    choose(i);
    start();
  }));

  function choose(i) {
    chosen = i;
    place.dataset.chosen = i;
    pictures.forEach((picture, j) => picture.classList.toggle("is-chosen", i === j));
    choices.forEach((choice, j) => choice.setAttribute("aria-pressed", String(i === j)));
  }

  function start() {
    const status = pictures[chosen].querySelector(".av-status");
    status.setAttribute("aria-live", "off"); // a screen reader would read every step
    play.textContent = "Stop";
    let at = 0;
    const step = () => {
      const all = tokens();
      if (at >= all.length) return stop();
      all[at++].dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
      timer = setTimeout(step, PACE);
    };
    step();
  }

  function stop() {
    clearTimeout(timer);
    timer = null;
    play.textContent = "Play";
    pictures[chosen].querySelector(".av-status").removeAttribute("aria-live");
  }

  // What the reader does, and not what is played: that is no event of the browser's own.
  for (const kind of ["pointerover", "pointerdown", "keydown", "focusin"]) {
    place.addEventListener(kind, (event) => {
      if (event.isTrusted && timer && !bar.contains(event.target)) stop();
    });
  }
  place.prepend(bar);
  choose(0);
  if (!matchMedia("(prefers-reduced-motion: reduce)").matches) start();
}
