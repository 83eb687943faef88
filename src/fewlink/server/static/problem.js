// Errors in the form, shown beside the field they are about, with entities to use instead.

import { Problem } from "./api.js";
import { $, button, setStatus } from "./dom.js";
import { setFolded } from "./views.js";

let wrong = null; // the field that the shown error is about

export function clearProblem() {
  wrong?.removeAttribute("aria-invalid");
  wrong = null;
  for (const chip of $("heads").children) chip.classList.remove("wrong");
  $("problem").hidden = true;
}

// Stops reading the form: `input` needs a value.
export function requireValue(message, input) {
  throw Object.assign(new Problem({ message }), { input });
}

// Shows an error at `place`: {field: the input or chip it is about, replace: puts an entity there}.
export function showProblem(error, place) {
  clearProblem();
  setStatus("");
  const field = error.input || place?.field;
  const section = field?.closest("#query section, #query .options") || $("query");
  const details = section.closest("details");
  if (details) details.open = true;
  $("problem").replaceChildren(error.message, ...offersOf(error, place));
  $("problem").hidden = false;
  if (section === $("query")) $("rank").parentElement.before($("problem"));
  else section.append($("problem"));
  setFolded(false);
  if (!field) return;
  wrong = field;
  if (field.tagName === "LI") field.classList.add("wrong");
  else {
    field.setAttribute("aria-invalid", "true");
    field.focus();
  }
}

function offersOf(error, place) {
  const offers = error.suggestions || [];
  if (!place) return [];
  return offers.flatMap((offer) => {
    const hasNamesake = offers.filter(({ name }) => name === offer.name).length > 1;
    const detail = hasNamesake ? ` (${offer.hint || offer.id})` : "";
    const onclick = () => {
      place.replace(offer);
      $("query").requestSubmit();
    };
    return [" ", button(`Use ${offer.name}${detail}`, { class: "quiet", onclick })];
  });
}

// The error may be mended: it goes when a field beside it changes.
$("query").addEventListener("input", ({ target }) => {
  if (wrong && $("problem").parentElement.contains(target)) clearProblem();
});
