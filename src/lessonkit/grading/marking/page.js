// Marking by keyboard. What is wanted (points, a comment) is shown at once, kept in the browser until the gradebook has it,
// and sent with what was seen before, so that the server can tell when somebody else has changed it meanwhile.
"use strict";

const { number, outOf: most, mathjax, hidden } = document.body.dataset;
const OUT_OF = Number(most);
const ANONYMOUS = hidden === "yes";
const KEPT = "lessonkit-mark:"; // in the browser's storage, followed by the grade's id
const RETRY = 3000; // ms until what could not be saved is sent again
const LOOK = 10000; // ms until it is asked again what others have marked
const TYPING = 600; // ms without a key until a comment is sent

const $ = (id) => document.getElementById(id);
const xsrf = document.querySelector("meta[name=xsrf]").content;
const answers = []; // in the order of the page
const byId = new Map();
const pending = new Map(); // id -> {seen, text, wanted, sending, changed, error}: not in the gradebook yet
const opened = new Set(); // ids of the answers that this page has shown
const html = new Map(); // id -> promise of the answer's HTML
let at = 0;
let typing = 0;

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** A setting of the page: kept in the browser where it lets us. */
function setting(name, value) {
  try {
    if (value === undefined) return localStorage.getItem(`lessonkit-marking-${name}`);
    localStorage.setItem(`lessonkit-marking-${name}`, value);
  } catch {
    return null;
  }
}

async function ask(path, body) {
  const how = body && {
    method: "POST",
    body: JSON.stringify(body),
    headers: { "Content-Type": "application/json", "X-XSRFToken": xsrf },
    keepalive: true, // also when the page is being closed
  };
  const said = await fetch(path, how);
  if (said.status === 403) throw new Error("The server was started anew: open the address that it printed.");
  if (!said.ok) throw new Error(`The server says ${said.status}.`);
  return said.json();
}

// ------------------------------------------------------------------------------------------------------------- marks

/** The mark of an answer as it will be: what the gradebook said, and what is wanted. */
function mark(answer) {
  const wanted = pending.get(answer.id)?.wanted ?? {};
  const judged = "points" in wanted ? { again: false, is_automatic: false } : {};
  return { ...answer.mark, ...judged, ...wanted };
}

function isMarked(answer) {
  const { points, again, is_automatic } = mark(answer);
  return points !== null && !again && !is_automatic && !pending.get(answer.id)?.changed;
}

function waits(answer) {
  return !isMarked(answer) && !mark(answer).is_automatic;
}

function keep(id) {
  const { seen, text, wanted } = pending.get(id);
  try {
    localStorage.setItem(KEPT + id, JSON.stringify({ seen, text, wanted }));
  } catch {
    // storage is full or forbidden: it is still in the page, and sent
  }
}

function forget(id) {
  pending.delete(id);
  try {
    localStorage.removeItem(KEPT + id);
  } catch {
    // as above
  }
}

function want(answer, part) {
  const before = pending.get(answer.id) ?? { seen: answer.mark, text: answer.text, wanted: {} };
  Object.assign(before.wanted, part);
  pending.set(answer.id, before);
  keep(answer.id);
}

async function send(answer) {
  const one = pending.get(answer.id);
  if (!one || one.sending || one.changed) return;
  one.sending = true;
  const wanted = { ...one.wanted };
  try {
    const result = await ask("/marks", { grade: answer.id, text: one.text, seen: one.seen, wanted });
    one.error = result.error;
    if (result.mark) {
      answer.mark = one.seen = result.mark;
      for (const part of Object.keys(wanted)) if (one.wanted[part] === wanted[part]) delete one.wanted[part];
      if (Object.keys(one.wanted).length) keep(answer.id);
      else forget(answer.id);
    } else if (result.changed) {
      answer.mark = result.changed;
      one.changed = true;
      one.rewritten = result.rewritten;
    } else one.error ??= "The server says something unknown.";
  } catch (error) {
    one.error = error instanceof TypeError ? "The server does not answer." : error.message;
  }
  one.sending = false;
  draw(answer);
  if (pending.has(answer.id) && !one.error) send(answer);
}

function sendAll() {
  clearTimeout(typing);
  for (const id of [...pending.keys()]) send(byId.get(id));
}

/** What an earlier page could not save: the browser has kept it. */
function takeUp() {
  for (const answer of answers) {
    try {
      const kept = JSON.parse(localStorage.getItem(KEPT + answer.id));
      if (kept) pending.set(answer.id, kept);
    } catch {
      return;
    }
  }
}

/** What others have marked meanwhile. */
async function look() {
  try {
    const now = await ask(`/marks?q=${number}`);
    if (now.error) return;
    for (const answer of answers) {
      if (pending.has(answer.id) || !now[answer.id]) continue;
      const is = JSON.stringify(now[answer.id]) !== JSON.stringify(answer.mark);
      answer.mark = now[answer.id];
      if (is) draw(answer);
    }
    const more = Object.keys(now).filter((id) => !byId.has(id)).length;
    if (more) say(`${more} more ${more === 1 ? "answer was" : "answers were"} graded: load the page anew to see them.`);
  } catch {
    // what is wanted says so itself when it cannot be saved
  }
}

// -------------------------------------------------------------------------------------------------------- what is seen

function say(words, trouble = false) {
  $("said").textContent = words;
  $("said").classList.toggle("trouble", trouble);
}

function shownPoints(points) {
  return points === null ? "no points" : `${points} ${points === 1 ? "point" : "points"}`;
}

function showsNames() {
  return !ANONYMOUS && $("names").getAttribute("aria-pressed") === "true";
}

function called(answer) {
  return showsNames() ? answer.name : `Answer ${answer.place + 1}`;
}

function group(answer) {
  return answers.filter((other) => other.group === answer.group);
}

function drawList() {
  const list = $("list");
  list.replaceChildren();
  let heading = null;
  let items = null;
  for (const answer of answers) {
    const size = answer.empty ? -1 : group(answer).length;
    const wanted = size < 0 ? "Nothing written" : size === 1 ? "Like no other" : `${size} similar`;
    if (heading?.textContent !== wanted || (size > 1 && answer.group !== answers[answer.place - 1].group)) {
      heading = make("h3", {}, wanted);
      items = make("ol");
      list.append(heading, items);
    }
    answer.button = make("button", { type: "button", tabindex: "-1" });
    answer.button.addEventListener("click", () => go(answer.place));
    items.append(make("li", {}, answer.button));
    drawItem(answer);
  }
}

function drawItem(answer) {
  const { points, again, is_automatic } = mark(answer);
  const one = pending.get(answer.id);
  const sign = one?.changed ? "⚠" : again ? `${points} ↻` : points === null ? "–" : `${points}`;
  const words = one?.changed
    ? "changed elsewhere"
    : again
      ? `${shownPoints(points)}, look again`
      : points === null
        ? "not marked"
        : `${shownPoints(points)}${is_automatic ? " by itself" : ""}`;
  const name = make("bdi", {}, called(answer));
  const place = make("span", { class: "number", "aria-hidden": "true" }, String(answer.place + 1));
  answer.button.replaceChildren(place, name, make("span", { class: "got", "aria-hidden": "true" }, sign));
  answer.button.setAttribute("aria-label", `${called(answer)}: ${words}`);
  answer.button.title = called(answer);
}

function drawCount() {
  const byHand = answers.filter((answer) => !mark(answer).is_automatic);
  const marked = byHand.filter(isMarked).length;
  const rest = answers.length - byHand.length;
  $("counted").textContent = `${marked} of ${byHand.length} marked${rest ? ` (${rest} empty: 0 by itself)` : ""}`;
  $("bar").max = Math.max(1, byHand.length);
  $("bar").value = marked;
}

/** All of the page that says something of this answer's mark. */
function draw(answer) {
  drawItem(answer);
  drawCount();
  if (answer !== answers[at]) {
    const lost = [...pending.values()].find((one) => one.error);
    if (lost) say(`Not saved yet, kept in this browser: ${lost.error}`, true);
    return;
  }
  const { points, comment, again, is_automatic } = mark(answer);
  for (const button of $("points").querySelectorAll("button[data-points]")) {
    const is = points !== null && Math.floor(points) === Number(button.dataset.points);
    button.setAttribute("aria-pressed", String(is && !is_automatic));
  }
  const half = $("half");
  if (half) half.setAttribute("aria-pressed", String(points !== null && points % 1 === 0.5));
  const field = $("exact");
  if (document.activeElement !== field) field.value = points === null || is_automatic ? "" : points;
  const box = $("comment");
  if (box.value !== comment) box.value = comment;
  const one = pending.get(answer.id);
  $("changed").hidden = !one?.changed;
  if (one?.changed) {
    const told = ({ points, comment }) => `${shownPoints(points)}${comment ? `, “${comment}”` : ""}`;
    const mine = told({ points, comment });
    $("changed").querySelector("p").textContent = one.rewritten
      ? `This answer was handed in anew. Load the page anew to read it, then choose. Yours, not saved: ${mine}.`
      : `Somebody has marked this answer elsewhere. There it is: ${told(answer.mark)}. Yours, not saved: ${mine}.`;
  }
  const error = one?.error ?? [...pending.values()].find((other) => other.error)?.error;
  const state = is_automatic ? `${points} points by itself: nothing is written` : shownPoints(points);
  if (error) say(`Not saved yet, kept in this browser: ${error}`, true);
  else if (one?.changed) say("Not saved: choose above.", true);
  else if (one) say(`${state}, saving …`);
  else if (again) say(`${state}, from before this answer was graded again: give the points anew, or others.`);
  else say(points === null ? (comment ? "Not marked; the comment is saved." : "Not marked.") : `${state}, saved.`);
}

/** Which points these answers have so far, and how many of them. */
function givenTo(some) {
  const times = new Map();
  for (const { points } of some.filter(isMarked).map(mark)) times.set(points, 1 + (times.get(points) ?? 0));
  const told = [...times].sort(([a], [b]) => a - b).map(([points, n]) => `${n} × ${points}`);
  return told.length ? `points so far: ${told.join(", ")}` : "none is marked";
}

function fetched(answer) {
  if (!html.has(answer.id)) {
    const came = ask(`/answer?q=${number}&grade=${encodeURIComponent(answer.id)}`);
    html.set(answer.id, came);
    came.catch(() => html.delete(answer.id));
  }
  return html.get(answer.id);
}

/** Show an answer's or our own HTML, which the server has made safe; links lead out of the page, or nowhere. */
function settle(place) {
  for (const link of place.querySelectorAll("a[href]")) {
    if (/^(https?:|mailto:)/i.test(link.getAttribute("href"))) {
      link.target = "_blank";
      link.rel = "noopener noreferrer";
    } else link.removeAttribute("href");
  }
  if (window.MathJax?.typesetPromise) {
    window.MathJax.typesetClear([place]);
    window.MathJax.typesetPromise([place]).catch(() => {});
  }
}

async function go(place) {
  sendAll();
  at = (place + answers.length) % answers.length;
  const answer = answers[at];
  for (const button of $("list").querySelectorAll("[aria-current]")) {
    button.removeAttribute("aria-current");
    button.tabIndex = -1;
  }
  answer.button.setAttribute("aria-current", "true");
  answer.button.tabIndex = 0;
  answer.button.scrollIntoView({ block: "nearest" });
  $("who").replaceChildren(make("bdi", {}, called(answer)), make("span", {}, ` ${at + 1} of ${answers.length}`));
  const others = group(answer);
  opened.add(answer.id);
  $("about").textContent = answer.empty
    ? "Nothing is written here."
    : others.length > 1
      ? `One of ${others.length} similar answers; ${givenTo(others)}.`
      : "Like no other answer.";
  $("alike").disabled = answer.empty || others.length < 2;
  draw(answer);
  try {
    const { html: text, error } = await fetched(answer);
    if (answer !== answers[at]) return;
    if (error) throw new Error(error);
    $("answer").innerHTML = text;
    $("answer").scrollTop = 0;
    settle($("answer"));
    if (answers.length > 1) fetched(answers[(at + 1) % answers.length]).catch(() => {});
  } catch (error) {
    if (answer === answers[at]) $("answer").textContent = `This answer could not be loaded. ${error.message}`;
  }
}

// ---------------------------------------------------------------------------------------------------------- what is done

function give(points) {
  const answer = answers[at];
  if (points !== null && !(points >= 0 && points <= OUT_OF)) {
    say(`There are 0 to ${OUT_OF} points.`, true);
    return;
  }
  want(answer, { points });
  draw(answer);
  send(answer);
  if (points !== null && $("auto").getAttribute("aria-pressed") === "true") nextUnmarked();
}

function giveHalf() {
  const points = mark(answers[at]).points ?? 0;
  give(points % 1 ? Math.floor(points) : points + 0.5 <= OUT_OF ? points + 0.5 : points - 0.5);
}

function nextUnmarked() {
  for (let step = 1; step <= answers.length; step++) {
    const place = (at + step) % answers.length;
    if (waits(answers[place])) {
      if (place !== at) go(place);
      return;
    }
  }
  say("All are marked.");
}

/** Ask first: these are other people's points. */
function forSimilar() {
  const answer = answers[at];
  const { points, comment } = mark(answer);
  const others = group(answer).filter((other) => other !== answer && waits(other));
  if (answer.empty || !isMarked(answer)) say("Give this answer its points first.", true);
  else if (!others.length) say("No similar answer waits to be marked.");
  else {
    const many = others.length === 1 ? "1 similar answer that is" : `${others.length} similar answers that are`;
    const numbers = others.map((other) => other.place + 1).join(", ");
    const words = comment ? ` and this comment: “${comment}”` : "";
    const unread = others.filter((other) => !opened.has(other.id)).length;
    const warning = unread ? ` You have not opened ${unread === 1 ? "one" : unread} of them.` : "";
    $("ask").querySelector("p").textContent =
      `${shownPoints(points)} for ${many} not marked (${numbers})${words}.${warning}`;
    $("ask").returnValue = "no";
    $("ask").onclose = () => {
      if ($("ask").returnValue !== "yes") return;
      for (const other of others) {
        want(other, comment && !mark(other).comment ? { points, comment } : { points });
        draw(other);
        send(other);
      }
      go(at);
    };
    $("ask").showModal();
  }
}

function toggle(id) {
  const pressed = $(id).getAttribute("aria-pressed") !== "true";
  $(id).setAttribute("aria-pressed", String(pressed));
  setting(id, pressed ? "yes" : "no");
  if (id === "names") {
    for (const answer of answers) drawItem(answer);
    go(at);
  }
}

function settleChange(mine) {
  const answer = answers[at];
  const one = pending.get(answer.id);
  if (!one?.changed) return;
  if (mine) {
    one.changed = false;
    one.seen = answer.mark;
    one.text = answer.text;
    keep(answer.id);
    send(answer);
  } else forget(answer.id);
  draw(answer);
  $("answer").focus();
}

const KEYS = {
  ArrowRight: () => go(at + 1),
  n: () => go(at + 1),
  ArrowLeft: () => go(at - 1),
  p: () => go(at - 1),
  u: nextUnmarked,
  c: () => $("comment").focus(),
  x: () => give(null),
  ".": giveHalf,
  ",": giveHalf,
  g: forSimilar,
  h: () => !ANONYMOUS && toggle("names"),
  a: () => toggle("auto"),
  "?": () => $("keys").showModal(),
};

function pressed(event) {
  const writes = event.target.closest("textarea, input");
  if (writes) {
    const goesOn = event.key === "Enter" && (event.ctrlKey || event.metaKey || writes === $("exact"));
    if (event.key !== "Escape" && !goesOn) return;
    event.preventDefault();
    if (goesOn && writes === $("exact")) giveExact();
    $("answer").focus();
    sendAll();
    if (goesOn && writes === $("comment")) nextUnmarked();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("dialog")) return;
  const digit = /^[0-9]$/.test(event.key);
  if (digit && OUT_OF <= 9) give(Number(event.key));
  else if (digit) {
    $("exact").value = event.key;
    $("exact").focus();
  } else if (KEYS[event.key]) KEYS[event.key]();
  else return;
  event.preventDefault();
}

function giveExact() {
  const typed = $("exact").value.trim().replace(",", ".");
  if (typed === "") give(null);
  else give(Number(typed));
}

function pointButtons() {
  const choices = OUT_OF <= 12 ? Array.from({ length: Math.floor(OUT_OF) + 1 }, (_, i) => i) : [];
  for (const points of choices) {
    const button = make("button", { type: "button", "data-points": points, "aria-label": shownPoints(points) }, String(points));
    button.addEventListener("click", () => give(points));
    $("points").append(button);
  }
  const half = make("button", { type: "button", id: "half", "aria-label": "half a point" }, "½");
  half.addEventListener("click", giveHalf);
  const exact = make("input", { id: "exact", inputmode: "decimal", autocomplete: "off", "aria-label": "Points" });
  exact.addEventListener("change", giveExact);
  $("points").append(half, exact, make("span", {}, `of ${OUT_OF}`));
}

function loadMathJax() {
  window.MathJax = {
    tex: {
      inlineMath: [["$", "$"], ["\\(", "\\)"]],
      packages: { "[-]": ["autoload", "require", "newcommand"] }, // what defines, loads or links: formulas are not ours
      maxBuffer: 5000,
      // A formula with a slip in it is to be read all the same.
      formatError: (jax, error) => jax.formatError({ id: error.id, message: `${jax.latex} (${error.message})` }),
    },
    options: { enableMenu: false },
    startup: {
      typeset: false,
      ready() {
        window.MathJax.startup.defaultReady();
        window.MathJax.startup.promise.then(() => [$("answer"), ...document.querySelectorAll(".ours")].forEach(settle));
      },
    },
  };
  document.head.append(make("script", { src: "/tex-svg.js" }));
}

async function start() {
  if (mathjax === "yes") loadMathJax();
  document.querySelectorAll(".ours").forEach(settle);
  pointButtons();
  for (const id of ["auto", "names"]) {
    const before = $(id) && setting(id);
    if (before) $(id).setAttribute("aria-pressed", String(before === "yes"));
  }
  const { answers: listed, error } = await ask(`/answers?q=${number}`).catch((error) => ({ error: error.message }));
  if (error || !listed.length) {
    $("who").textContent = error ?? "Nobody has handed in an answer to this question.";
    $("mark").hidden = true;
    return;
  }
  for (const answer of listed) {
    answer.place = answers.push(answer) - 1;
    byId.set(answer.id, answer);
  }
  takeUp();
  drawList();
  drawCount();
  await go(Math.max(0, answers.findIndex(waits)));
  document.addEventListener("keydown", pressed);
  for (const [id, does] of Object.entries({
    previous: KEYS.p,
    next: KEYS.n,
    unmarked: KEYS.u,
    alike: KEYS.g,
    names: KEYS.h,
    auto: KEYS.a,
    help: KEYS["?"],
    theirs: () => settleChange(false),
    mine: () => settleChange(true),
  }))
    $(id)?.addEventListener("click", does);
  $("comment").addEventListener("input", () => {
    want(answers[at], { comment: $("comment").value });
    drawCount();
    clearTimeout(typing);
    typing = setTimeout(sendAll, TYPING);
  });
  $("comment").addEventListener("blur", sendAll);
  window.addEventListener("pagehide", sendAll);
  window.addEventListener("focus", look);
  setInterval(look, LOOK);
  setInterval(() => [...pending.values()].some((one) => one.error) && sendAll(), RETRY);
  document.documentElement.dataset.ready = "";
}

start();
