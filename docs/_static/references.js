// A citation shows its entry, a term what it means: on hover, on focus; Escape puts the note away. Without this script
// the browser shows the link's title.
const note = Object.assign(document.createElement("div"), { className: "note-of-link", id: "note-of-link", hidden: true });
note.setAttribute("role", "tooltip");
let waiting = 0;

function show(link) {
  clearTimeout(waiting);
  note.textContent = link.dataset.note;
  note.hidden = false;
  document.body.append(note);
  const box = link.getClientRects()[0];
  const left = Math.min(box.left, document.documentElement.clientWidth - note.offsetWidth - 8);
  const below = box.bottom + note.offsetHeight + 8 < innerHeight;
  note.style.left = `${Math.max(left, 8) + scrollX}px`;
  note.style.top = `${scrollY + (below ? box.bottom + 4 : box.top - note.offsetHeight - 4)}px`;
  link.setAttribute("aria-describedby", note.id);
}

function hide() {
  document.querySelector("[aria-describedby=note-of-link]")?.removeAttribute("aria-describedby");
  note.hidden = true;
}

const soon = () => { waiting = setTimeout(hide, 150); };  // the pointer may go from the link onto the note

for (const link of document.querySelectorAll("a.cite[title], a.term[title]")) {
  link.dataset.note = link.title;
  link.removeAttribute("title");
  link.addEventListener("pointerenter", (event) => { if (event.pointerType === "mouse") show(link); });
  link.addEventListener("pointerleave", soon);
  link.addEventListener("focus", () => show(link));
  link.addEventListener("blur", hide);
}
note.addEventListener("pointerenter", () => clearTimeout(waiting));
note.addEventListener("pointerleave", soon);
addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
