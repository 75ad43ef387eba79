// The book's search: which sections have the words, in which order, and the list under the search field.
// Its index (lessonkit.authoring.site.search) is loaded when somebody begins to search.
"use strict";

const bookSearch = (() => {
  const ROOT = document.documentElement.dataset.content_root || "./";
  const COMPOUND = /√|∞|[\p{L}\p{N}]+(?:[-‑–_.][\p{L}\p{N}]+)*/gu;
  const SIGNS = { "√": "sqrt", "∞": "infinity" };
  // Of two sections that answer as well, the lecture's comes first. Solutions come after all else.
  const KIND = { lecture: 1, term: 0.8, guide: 0.7, assignment: 0.6, api: 0.45, solution: 0.45 };
  const SYNONYM = 0.7, PREFIX = 0.6, TYPO = 0.55;   // beside a word that stands there as it was typed

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
  const sequence = (text) => words(text).flatMap((word) => word.parts);
  const line = (stems) => ` ${stems.join(" ")} `;

  // The index

  let book;

  function build({ entries, synonyms, stopwords }) {
    [stemmer, known] = [new EnglishStemmer(), new Map()];
    const postings = new Map();                             // stem → entry → how often it stands in which part of it
    const sections = entries.map((entry, number) => {
      const count = (text, part, once) => {
        for (const { whole, parts } of words(text)) {
          const all = parts.length > 1 ? [whole, ...parts.filter((each) => each.length > 1)] : [whole];
          for (const each of all) {
            if (!postings.has(each)) postings.set(each, new Map());
            const found = postings.get(each);
            if (!found.has(number)) found.set(number, { title: 0, under: 0, text: 0, code: 0 });
            found.get(number)[part] += 1;
          }
        }
      };
      count(entry.title, "title");
      count(entry.under.join(" "), "under");
      count(entry.text, "text");
      count(entry.code, "code");
      return {
        ...entry, ...subject(entry.title), titled: line(sequence(entry.title)), told: line(sequence(entry.text)),
        length: entry.text.length,
      };
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
    const flat = asked.flatMap(({ whole, parts }, i) => parts.map((part, k) => ({ part, whole, parts, first: k === 0, last: i === asked.length - 1 })));
    const ideas = [];
    const told = flat.filter(({ part }) => !book.stopwords.has(part) && part.length > 1);
    const silent = told.length ? ({ part, parts }) => parts.length === 1 && book.stopwords.has(part) : () => false;
    for (let i = 0; i < flat.length; ) {
      const [length, others] = named(flat, i);
      const span = flat.slice(i, i + Math.max(length, flat[i].parts.length));
      i += span.length;
      if (!others.length && span.every(silent)) continue;
      const readings = [reading(span.map(({ part }) => part), 1, span.at(-1).last)];
      if (span[0].parts.length > 1) readings.push(reading([span[0].whole], 1));
      // "rms norm" is written RMSNorm, too.
      const joined = [span.map(({ part }) => part).join(""), ...(flat[i] ? [span.at(-1).part + flat[i].part] : [])];
      readings.push(...joined.filter((each) => book.postings.has(each)).map((each) => reading([each], 1)));
      readings.push(...others.map((name) => reading(name.stems, SYNONYM)));
      ideas.push(readings.filter(({ terms }) => terms.length));
    }
    return ideas;
  }

  /** How many words from the i-th on are a name of something that has others, and the others. */
  function named(flat, i) {
    let [longest, others] = [0, []];
    for (const group of book.names) {
      for (const name of group) {
        const length = name.stems.length;
        if (length < longest || !length || name.stems.some((part, k) => flat[i + k]?.part !== part)) continue;
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

  /** The sections that answer `query`, best first: each with its `score`, and all stems to mark in it. */
  function find(query) {
    const ideas = understood(query);
    const scores = new Map(), marked = new Set();
    ideas.forEach((readings, i) => {
      const best = new Map();
      for (const reading of readings) {
        for (const [number, score] of answers(reading, marked)) {
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
      return { section, score: score * met * met * together * KIND[section.kind] };
    });
    const late = ({ section }) => section.kind === "solution";
    found.sort((a, b) => late(a) - late(b) || b.score - a.score);
    return { found, marked };
  }
  const sum = (all, of) => all.reduce((total, each, i) => total + of(each, i), 0);

  function answers({ terms, weight, phrase, long, stems }, marked) {
    const scores = new Map(), met = new Map();
    const most = sum(terms, (term) => term.rare);
    for (const { found, rare } of terms) {
      const best = new Map();
      for (const [word, likeness] of found) {
        marked.add(word);
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

  return { ready, find, words, ROOT };
})();
