// The form folded away once it has an answer, in windows that have no room for both side by side.

import { $ } from "./dom.js";

export function setFolded(folded) {
  $("side").classList.toggle("folded", folded);
  $("unfold").setAttribute("aria-expanded", String(!folded));
}

$("unfold").addEventListener("click", () => {
  setFolded(false);
  $("query").querySelector("input").focus();
});
