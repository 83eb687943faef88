// The two pages in one document: the start page, and the page with a question and its suggestions (#ask).

import { $ } from "./dom.js";

const VIEWS = ["start", "work"];

export const inWork = () => !$("work").hidden;

const viewOfAddress = () => (location.hash ? "work" : "start");

// Shows a view and puts it into the address, so that Back returns from it.
export function goTo(view) {
  if (viewOfAddress() !== view) {
    history.pushState(null, "", view === "work" ? "#ask" : location.pathname + location.search);
  }
  showView();
}

// Shows the view that the address names. Anchors inside the page, such as #accepted, change nothing.
export function showView() {
  const view = viewOfAddress();
  if (!$(view).hidden) return;
  for (const name of VIEWS) {
    $(name).hidden = name !== view;
    if (name === view) $(`to-${name}`).setAttribute("aria-current", "page");
    else $(`to-${name}`).removeAttribute("aria-current");
  }
  $("skip").hidden = view !== "work";
  scrollTo(0, 0);
}

addEventListener("popstate", showView);
$("to-start").addEventListener("click", (event) => {
  event.preventDefault();
  goTo("start");
});

// Folds the form away once it has an answer, in windows that have no room for both side by side.
export function setFolded(folded) {
  $("side").classList.toggle("folded", folded);
  $("unfold").setAttribute("aria-expanded", String(!folded));
}

$("unfold").addEventListener("click", () => {
  setFolded(false);
  $("query").querySelector("input").focus();
});
