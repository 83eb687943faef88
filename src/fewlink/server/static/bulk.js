// Accepting all undecided suggestions above a threshold.

import { decide } from "./decisions.js";
import { $, element } from "./dom.js";
import { hasProbability, meritOf } from "./filters.js";
import { undecidedPredictions } from "./list.js";
import { formatPercent, formatScore, pairText, plural } from "./text.js";

const MAX_PAIRS = 1000; // of one request
const OFFERED = 5; // the threshold is first set so that about as many pairs reach it

const selected = () =>
  undecidedPredictions()
    .filter((prediction) => meritOf(prediction) >= Number($("bulk-minimum").value))
    .slice(0, MAX_PAIRS);

function openDialog() {
  const merits = undecidedPredictions()
    .map(meritOf)
    .sort((one, other) => other - one);
  const start = merits[Math.min(OFFERED, merits.length) - 1] ?? 0;
  const inPercent = undecidedPredictions().some(hasProbability);
  $("bulk-label").textContent = inPercent ? "Minimum probability in %" : "Minimum score";
  $("bulk-minimum").value = inPercent ? Math.floor(start) : start;
  showSelected();
  $("bulk").showModal();
  $("bulk-minimum").select();
}

function showSelected() {
  const predictions = selected();
  $("bulk-list").replaceChildren(
    ...predictions.map((prediction) => {
      const merit = hasProbability(prediction)
        ? formatPercent(prediction.probability)
        : formatScore(prediction.score);
      return element(
        "li",
        {},
        element("span", {}, pairText(prediction)),
        element("small", {}, merit),
      );
    }),
  );
  const verb = predictions.length === 1 ? "reaches" : "reach";
  $("bulk-count").textContent = predictions.length
    ? `${plural(predictions.length, "undecided pair")} ${verb} this threshold:`
    : "No undecided pair reaches this threshold.";
  $("bulk-accept").disabled = !predictions.length;
  $("bulk-accept").textContent = `Accept ${plural(predictions.length, "pair")}`;
}

$("bulk-open").addEventListener("click", openDialog);
$("bulk-minimum").addEventListener("input", showSelected);
$("bulk-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const predictions = selected();
  $("bulk").close();
  if (predictions.length) decide(predictions, "accepted");
});
