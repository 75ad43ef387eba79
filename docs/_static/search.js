// The book's search: which sections have the words, in which order, and the list under the search field.
// Its index (lessonkit.authoring.site.search) is loaded when somebody begins to search.
"use strict";

const bookSearch = (() => {
  const ROOT = document.documentElement.dataset.content_root || "./";
  const COMPOUND = /√|∞|[\p{L}\p{N}]+(?:[-‑–_.][\p{L}\p{N}]+)*/gu;
  const SIGNS = { "√": "sqrt", "∞": "infinity" };
  // Of two sections that answer as well, the lecture's comes first. Solutions come after all else.
  const KIND = { lecture: 1, term: 0.2, guide: 0.7, assignment: 0.6, api: 0.25, solution: 0.5 };
  const SYNONYM = 0.7, PREFIX = 0.6, TYPO = 0.55;   // beside a word that stands there as it was typed
  const LEAST = 0.08;                               // of the best section's score, or a section is left out

  // Words

  let stemmer, known;

  /** A word as it is compared: without accents and endings, -ise as -ize. */
  function stem(word) {
    const plain = word.toLowerCase().normalize("NFD").replace(/\p{M}/gu, "");
    return stemmer.stemWord(plain.replace(/is(?=(e[drs]?|ers|ing|ations?)$)/, "iz"));
  }

  /** Its stem as one word, and the stems of its parts: "pre-norm" and "LayerNorm" have two. */
  function analysed(word) {
    let found = known.get(word);
    if (!found) {
      const parts = (SIGNS[word] || word).split(/[-‑–_.]|(?<=\p{Ll})(?=\p{Lu}\p{Ll})/u);
      found = { whole: stem(parts.join("")), parts: parts.map(stem) };
      known.set(word, found);
    }
    return found;
  }

  /** The words of a text, and where each stands. */
  const words = (text) => [...text.matchAll(COMPOUND)].map(({ 0: word, index }) => ({ word, index, ...analysed(word) }));
  const flat = (words) => words.flatMap(({ parts }) => parts);
  const sequence = (text) => flat(words(text));
  const line = (stems) => ` ${stems.join(" ")} `;

  // The index

  let book;

  function build({ entries, synonyms, stopwords }) {
    [stemmer, known] = [new EnglishStemmer(), new Map()];
    const postings = new Map();                             // stem → entry → how often it stands in which part of it
    const count = (all, number, part) => {
      for (const { whole, parts } of all) {
        for (const each of parts.length > 1 ? [whole, ...parts.filter((part) => part.length > 1)] : parts) {
          let found = postings.get(each);
          if (!found) postings.set(each, (found = new Map()));
          let counts = found.get(number);
          if (!counts) found.set(number, (counts = { title: 0, under: 0, text: 0, code: 0 }));
          counts[part] += 1;
        }
      }
    };
    const sections = entries.map((entry, number) => {
      const [title, text] = [words(entry.title), words(entry.text)];
      count(title, number, "title");
      count(text, number, "text");
      count(words(entry.under.join(" ")), number, "under");
      count(words(entry.code), number, "code");
      return { ...entry, ...subject(entry.title), titled: line(flat(title)), told: line(flat(text)), length: text.length };
    });
    const mean = sections.reduce((sum, section) => sum + section.length, 0) / sections.length;
    const names = synonyms.map((group) => group.map((name) => ({ name, stems: sequence(name) })));
    book = { sections, postings, mean, names, vocabulary: [...postings.keys()], stopwords: new Set(stopwords) };
    return book;
  }

  /** A heading says "Standard term (abbreviation): what is said of it"; the subject is what stands before the colon. */
  function subject(title) {
    const term = title.replace(/^.* · /, "").split(":")[0];
    const size = words(term.replace(/\(.*?\)/g, "")).length;
    return { subject: new Set(words(term).flatMap(({ whole, parts }) => [whole, ...parts])), size };
  }

  /** How much a word tells: that it stands in few sections. */
  function rarity(word) {
    const among = book.postings.get(word)?.size ?? 0;
    return Math.log(1 + (book.sections.length - among + 0.5) / (among + 0.5));
  }

  // The question

  /** A word of the question as the book has it: [stem, weight], and those that begin so, or are a typing error away. */
  function variants(word, unfinished) {
    const found = book.postings.has(word) ? [[word, 1]] : [];
    if (word.length > 2 && (unfinished || !found.length)) {
      const longer = book.vocabulary.filter((each) => each !== word && each.startsWith(word));
      found.push(...longer.slice(0, 30).map((each) => [each, PREFIX]));
    }
    if (!found.length && word.length > 3) {
      const most = word.length > 7 ? 2 : 1;
      for (const each of book.vocabulary) {
        const away = steps(word, each, most);
        if (away <= most) found.push([each, TYPO / away]);
      }
    }
    return found;
  }

  /** How many letters must be put in, left out, changed or exchanged with the next; more than `most` is `most` + 1. */
  function steps(a, b, most) {
    if (Math.abs(a.length - b.length) > most) return most + 1;
    let before = [], last = Array.from({ length: b.length + 1 }, (_, j) => j);
    for (let i = 1; i <= a.length; i++) {
      const row = [i];
      for (let j = 1; j <= b.length; j++) {
        const change = last[j - 1] + (a[i - 1] !== b[j - 1]);
        row[j] = Math.min(last[j] + 1, row[j - 1] + 1, change);
        if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) row[j] = Math.min(row[j], before[j - 2] + 1);
      }
      if (Math.min(...row) > most) return most + 1;
      [before, last] = [last, row];
    }
    return last[b.length];
  }

  /** What is asked for: ideas, each with its readings; a reading is words that belong together, and a weight. */
  function understood(query) {
    const asked = words(query);
    const plain = asked.flatMap((word, i) => word.parts.map((part) => ({ ...word, part, last: i === asked.length - 1 })));
    const says = ({ part }) => !book.stopwords.has(part) && part.length > 1;
    const silent = plain.some(says) ? ({ part, parts }) => parts.length === 1 && book.stopwords.has(part) : () => false;
    const ideas = [];
    for (let i = 0; i < plain.length; ) {
      const [length, others] = named(plain, i);
      const span = plain.slice(i, i + Math.max(length, plain[i].parts.length));
      i += span.length;
      if (!others.length && span.every(silent)) continue;
      const parts = span.map(({ part }) => part);
      // "rms norm" is written RMSNorm, too.
      const joined = [span[0].whole, parts.join(""), ...(plain[i] ? [parts.at(-1) + plain[i].part] : [])];
      const asOne = [...new Set(joined)].filter((each) => each !== parts[0] && book.postings.has(each));
      ideas.push([
        reading(parts, 1, span.at(-1).last),
        ...asOne.map((each) => reading([each], 1)),
        ...others.map(({ stems }) => reading(stems, SYNONYM)),
      ]);
    }
    return ideas;
  }

  /** How many words from the i-th on are a name of something that has others, and the others. */
  function named(plain, i) {
    let [longest, others] = [0, []];
    for (const group of book.names) {
      for (const name of group) {
        const length = name.stems.length;
        if (length < longest || !length || name.stems.some((part, k) => plain[i + k]?.part !== part)) continue;
        if (length > longest) [longest, others] = [length, []];
        others.push(...group.filter((other) => other !== name));
      }
    }
    return [longest, others];
  }

  function reading(stems, weight, unfinished = false) {
    const telling = stems.filter((each) => !book.stopwords.has(each));
    const terms = (telling.length ? telling : stems).map((each, k, all) => {
      const found = variants(each, unfinished && k === all.length - 1);
      // A word that begins others is as common as it is itself.
      const rare = book.postings.has(each) || !found.length ? rarity(each) : Math.max(...found.map(([word]) => rarity(word)));
      return { found, rare };
    });
    return { terms, weight, phrase: line(stems), long: stems.length > 1, stems };
  }

  // The answer

  /** The sections that answer `query`, best first: `found`; the stems to `mark` in them; words that were `misspelt`. */
  function find(query) {
    const ideas = understood(query);
    const scores = new Map(), marked = new Set();
    ideas.forEach((readings, i) => {
      const best = new Map();
      for (const reading of readings) {
        if (reading.weight === 1 || !reading.long) {  // of other names, an abbreviation
          for (const { found } of reading.terms) for (const [word] of found) marked.add(word);
        }
        for (const [number, score] of answers(reading)) {
          if (score > (best.get(number) ?? 0)) best.set(number, score);
        }
      }
      for (const [number, score] of best) {
        if (!scores.has(number)) scores.set(number, []);
        scores.get(number)[i] = score;
      }
    });
    // What each idea can earn says how much it is missed.
    const weights = ideas.map(([own]) => sum(own.terms, (term) => term.rare));
    const whole = sequence(query);
    const found = [...scores].map(([number, parts]) => {
      const section = book.sections[number];
      const met = sum(weights, (weight, i) => (parts[i] ? weight : 0)) / sum(weights, (weight) => weight);
      const together = whole.length < 2 ? 1 : section.titled.includes(line(whole)) ? 1.5 : section.told.includes(line(whole)) ? 1.2 : 1;
      const score = sum(weights, (weight, i) => weight * (parts[i] ?? 0)) / sum(weights, (weight) => weight);
      const worth = score * met * met * together;
      return { section, worth, score: worth * KIND[section.kind] };
    });
    const least = LEAST * Math.max(0, ...found.map(({ worth }) => worth));
    const late = ({ section }) => ["assignment", "solution"].indexOf(section.kind);  // what is to be done comes after what is told
    const best = found.filter(({ worth }) => worth >= least).sort((a, b) => late(a) - late(b) || b.score - a.score);
    return { found: best, marked, misspelt: words(query).filter(isUnknown).map(({ word }) => word) };
  }

  function isUnknown({ whole, parts }) {
    const isName = book.names.some((group) => group.some(({ stems }) => parts.every((part) => stems.includes(part))));
    return !isName && !book.stopwords.has(whole) && !book.vocabulary.some((each) => each.startsWith(whole) || parts.includes(each));
  }

  const sum = (all, of) => all.reduce((total, each, i) => total + of(each, i), 0);

  /** What each section that has words of a reading earns by it: 4 or so where it is what its heading names. */
  function answers({ terms, weight, phrase, long, stems }) {
    const scores = new Map(), met = new Map();
    const most = sum(terms, (term) => term.rare);
    for (const { found, rare } of terms) {
      const best = new Map();
      for (const [word, likeness] of found) {
        for (const [number, counts] of book.postings.get(word)) {
          const { length, subject, size } = book.sections[number];
          const often = counts.text / (0.5 + (0.5 * length) / book.mean);
          const score =
            often / (often + 1.5) + (counts.title && 1.5) + (counts.under && 0.3) + (counts.code && 0.1) +
            (subject.has(word) ? 0.5 + 1.5 * Math.min(1, stems.length / size) : 0);
          if (score * likeness > (best.get(number)?.[0] ?? 0)) best.set(number, [score * likeness, likeness]);
        }
      }
      for (const [number, [score, share]] of best) {
        scores.set(number, (scores.get(number) ?? 0) + score * rare / most);
        met.set(number, (met.get(number) ?? 0) + share * rare / most);
      }
    }
    for (const [number, score] of scores) {
      const { titled, told } = book.sections[number];
      const together = !long ? 1 : titled.includes(phrase) ? 1.6 : told.includes(phrase) ? 1.25 : 1;
      scores.set(number, score * weight * together * met.get(number) ** (long ? 3 : 1));
    }
    return scores;
  }

  let loading;
  /** The index, loaded once. */
  function ready() {
    loading ??= new Promise((done, failed) => {
      const script = document.createElement("script");
      script.src = `${ROOT}_static/search-index.js`;
      script.onload = () => done(build(bookIndex));
      script.onerror = () => failed(new Error("no search-index.js"));
      document.head.append(script);
    });
    return loading;
  }

  return { ready, isReady: () => Boolean(book), find, words, ROOT };
})();

// What the reader sees: a list under each search field. The theme opens its dialog by a button and Ctrl+K; / does, too.
(() => {
  const IN_DIALOG = 8, ON_PAGE = 100, AROUND = 28;  // results, results, words of a snippet
  const WHAT = { api: "Reference", term: "Glossary", guide: "Guide" };
  const KEYS = "Type what you look for. ↓ and ↑ choose, Enter opens, Esc closes.";

  const make = (tag, look, ...parts) => {
    const element = document.createElement(tag);
    if (look) element.className = look;
    element.append(...parts);
    return element;
  };

  /** A part of a text, from the word `from` to the word `to`, with the stems of `marked` marked. */
  function withMarks(text, marked, from = 0, to = Infinity) {
    const all = bookSearch.words(text), shown = all.slice(from, to);
    if (!shown.length) return [text];
    let at = from ? shown[0].index : 0;
    const parts = from ? ["… "] : [];
    for (const { word, index, whole, parts: stems } of shown) {
      if (!marked.has(whole) && !stems.some((each) => marked.has(each))) continue;
      parts.push(text.slice(at, index), make("mark", "", word));
      at = index + word.length;
    }
    const end = to < all.length ? shown.at(-1).index + shown.at(-1).word.length : text.length;
    return [...parts, text.slice(at, end), ...(to < all.length ? ["\u00a0…"] : [])];
  }

  /** The words of a text around the place where most different ones of those asked for stand. */
  function snippet(text, marked) {
    const told = bookSearch.words(text).map(({ whole, parts }) => [whole, ...parts].find((each) => marked.has(each)));
    let [best, start] = [0, 0];
    told.forEach((stem, i) => {
      if (!stem) return;
      const met = told.slice(i, i + AROUND - 6).filter(Boolean);
      const worth = new Set(met).size + met.length / 100;
      if (worth > best) [best, start] = [worth, i];
    });
    start = start < 8 ? 0 : start - 6;
    return withMarks(text, marked, start, start + AROUND);
  }

  function result({ section }, marked) {
    const { page, id, title, under, kind, text } = section;
    const link = make("a", "", make("span", "found-title", ...withMarks(title, marked)));
    link.href = `${bookSearch.ROOT}${page}${id && "#"}${id}`;
    const where = [WHAT[kind], ...under].filter(Boolean).join(" › ");
    if (where) link.append(" ", make("span", "found-where", where));
    if (text) link.append(" ", make("span", "found-text", ...snippet(text, marked)));
    return make("li", "", link);
  }

  function attach(form) {
    const input = form.querySelector("input"), dialog = form.closest("dialog");
    const said = make("p", "found-said", dialog ? KEYS : ""), list = make("ol", "found-list");
    const all = make("a", "found-all");
    said.setAttribute("role", "status");
    const box = make("div", "found", said, list, all);
    form.after(box);
    dialog?.setAttribute("aria-label", input.getAttribute("aria-label"));

    async function show() {
      if (!bookSearch.isReady()) said.textContent = "The index is being loaded …";
      try {
        await bookSearch.ready();
      } catch {
        said.textContent = "The index of the book could not be loaded: _static/search-index.js is missing.";
        return;
      }
      const query = input.value.trim();
      const { found, marked, misspelt } = query ? bookSearch.find(query) : { found: [], marked: new Set(), misspelt: [] };
      const most = dialog ? IN_DIALOG : ON_PAGE;
      list.replaceChildren(...found.slice(0, most).map((each) => result(each, marked)));
      const count = found.length === 1 ? "1 section" : `${found.length} sections`;
      const spelt = misspelt.length ? `Nothing has “${misspelt.join("”, “")}”. ` : "";
      if (!query) said.textContent = dialog ? KEYS : "";
      else if (found.length) said.textContent = `${spelt}${spelt ? "What is spelt like it: " : ""}${count}.`;
      else said.textContent = `${spelt || `Nothing found for “${query}”. `}Try another word for it, or fewer.`;
      all.href = `${bookSearch.ROOT}search.html?q=${encodeURIComponent(query)}`;
      all.textContent = dialog && found.length > most ? `All ${found.length}` : "";
      all.hidden = !all.textContent;
      list.scrollTop = box.scrollTop = 0;
    }

    input.addEventListener("focus", () => bookSearch.ready().catch(() => {}));
    input.addEventListener("input", () => {
      show();
      if (!dialog) history.replaceState(null, "", `?q=${encodeURIComponent(input.value)}`);
    });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      await show();
      list.querySelector("a")?.click();
    });
    list.addEventListener("click", () => dialog?.close());  // the section may be on this page
    form.parentElement.addEventListener("keydown", (event) => {
      const stops = [input, ...box.querySelectorAll("a:not([hidden])")], at = stops.indexOf(document.activeElement);
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step && at >= 0) {
        event.preventDefault();
        stops[Math.min(Math.max(at + step, 0), stops.length - 1)].focus();
      } else if (at > 0 && event.key.length === 1 && !event.ctrlKey && !event.metaKey && !event.altKey) {
        input.focus();  // and the letter goes there
      }
    });
    if (!dialog) {
      input.value = new URLSearchParams(location.search).get("q") ?? "";
      input.focus();
      show();
    }
  }

  document.querySelectorAll("form.bd-search").forEach(attach);

  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest?.("input, textarea, select, [contenteditable]")) return;
    event.preventDefault();
    const dialog = document.getElementById("pst-search-dialog");
    const own = [...document.querySelectorAll("form.bd-search input")].find((input) => !dialog?.contains(input));
    if (own) own.focus();
    else if (!dialog.open) dialog.showModal();
  });
})();
