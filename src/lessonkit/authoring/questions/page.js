// The self-test: says at once whether an option is right, and why, and counts what was right at the first try.
// A link to a lesson's part, questions.html#questions-04, unfolds it.
document.getElementById(location.hash.slice(1))?.closest("details.qb-lesson")?.setAttribute("open", "");
for (const lesson of document.querySelectorAll(".qb-lesson")) {
  const tally = lesson.querySelector(".qb-tally");
  const total = lesson.querySelectorAll(".qb").length;
  let answered = 0;
  let right = 0;
  for (const question of lesson.querySelectorAll(".qb")) {
    const told = question.querySelector(".qb-told");
    const reasons = question.querySelectorAll(".qb-reasons li");
    let first = true;
    question.querySelectorAll("input").forEach((input, place) =>
      input.addEventListener("change", () => {
        const ok = input.hasAttribute("data-right");
        input.parentElement.querySelector(".qb-mark").textContent = ok ? "✓" : "✗";
        const word = document.createElement("strong");
        word.textContent = ok ? "Right. " : "No. ";
        const why = reasons[place].querySelector(".qb-why").cloneNode(true);
        told.replaceChildren(word, why);
        if (!first) return;
        first = false;
        answered += 1;
        right += ok;
        tally.textContent = `${total} questions; ${right} of ${answered} right at the first try`;
      }),
    );
  }
}
