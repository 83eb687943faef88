// The filters of the list of suggestions.

import { $, element } from "./dom.js";
import { kindOf } from "./project.js";
import { inPercent, roundedScore, withSpaces } from "./text.js";

const DECISIONS = {
  open: (kind) => kind !== "rejected",
  undecided: (kind) => !kind,
  accepted: (kind) => kind === "accepted" || kind === "reference",
  rejected: (kind) => kind === "rejected",
};

let tailTypes = {}; // types of the listed tails, or heads, by id
let end = "tail"; // which of the two are listed

export const hasProbability = (prediction) => (prediction.probability ?? null) !== null;

// What a threshold is compared with: a probability in percent, or a score, as they are shown.
export const meritOf = (prediction) =>
  hasProbability(prediction) ? inPercent(prediction.probability) : roundedScore(prediction.score);

// Adapts the filters to a ranking of tails or heads, the end that is `found`.
export function prepareFilters({ predictions, tail_types: types }, found) {
  end = found;
  tailTypes = types || {};
  const names = [...new Set(Object.values(tailTypes).flat())].sort();
  const selected = $("filter-type").value;
  $("filter-type").replaceChildren(
    element("option", { value: "" }, "any type"),
    ...names.map((name) => element("option", { value: name }, withSpaces(name))),
  );
  $("filter-type").value = names.includes(selected) ? selected : "";
  $("filter-type-field").hidden = names.length < 2;
  $("filter-type-label").textContent = `Type of ${end}`;
  $("filter-minimum-label").textContent = predictions.some(hasProbability)
    ? "Minimum %"
    : "Minimum score";
  $("filters").hidden = !predictions.length;
}

export function passesFilters(prediction) {
  const { head, tail, head_name, tail_name } = prediction;
  const text = $("filter-text").value.trim().toLowerCase();
  const type = $("filter-type").value;
  const minimum = $("filter-minimum").value;
  const names = `${head_name}\n${tail_name}\n${head}\n${tail}`.toLowerCase();
  return (
    DECISIONS[$("filter-decision").value](kindOf(prediction)) &&
    names.includes(text) &&
    (!type || (tailTypes[prediction[end]] || []).includes(type)) &&
    (!minimum || meritOf(prediction) >= Number(minimum))
  );
}

$("filters-clear").addEventListener("click", () => {
  for (const id of ["filter-text", "filter-minimum", "filter-type"]) $(id).value = "";
  $("filter-decision").value = "open";
  $("filters").dispatchEvent(new Event("input"));
});
