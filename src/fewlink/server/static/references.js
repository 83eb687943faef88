// The references in the form: rows of a head and a tail. In a project, complete rows are stored at once.

import { searchEntities } from "./api.js";
import {
  addCompletion,
  chosen,
  distinctName,
  entityNamed,
  fill,
  onPasteLines,
} from "./completion.js";
import { $, announce, button, element } from "./dom.js";
import { emit, on } from "./events.js";
import { clearProblem, showProblem } from "./problem.js";
import { enqueue, project, readDecisions, storeDecisions } from "./project.js";
import { plural } from "./text.js";

const inputsOf = (row) => [...row.querySelectorAll("input")];

// The head and tail inputs of each row.
export const referenceInputs = () => [...$("references").children].map(inputsOf);

// Rows with some text: [head, tail], null for an empty field.
export const enteredReferences = () =>
  referenceInputs()
    .map((inputs) => inputs.map(chosen))
    .filter((pair) => pair.some(Boolean));

export const completeReferences = () => enteredReferences().filter((pair) => pair.every(Boolean));

export function showReferences(references) {
  $("references").replaceChildren();
  for (const pair of references) addRow(pair);
  while (referenceInputs().length < (project ? 1 : 2)) addRow();
  tidyRows();
}

const changed = () => $("references").dispatchEvent(new Event("input", { bubbles: true }));

function addRow([head, tail] = [null, null]) {
  const row = element("div", { class: "pair", role: "group", "aria-label": "Reference" });
  const [first, second] = ["Head", "Tail"].map((end) =>
    element("input", {
      type: "text",
      maxlength: 500,
      "aria-label": `${end} of a reference`,
      placeholder: end,
    }),
  );
  const onclick = () => removeRow(row);
  row.append(
    element("div", { class: "field" }, first),
    element("span", { "aria-hidden": "true" }, "→"),
    element("div", { class: "field" }, second),
    button("×", { class: "remove", "aria-label": "Remove this reference", onclick }),
    element("p", { class: "full-names", hidden: true }),
  );
  $("references").append(row);
  addCompletion(first, searchEntities, () => second.focus());
  addCompletion(second, searchEntities, () => {
    tidyRows();
    if (project) saveReferences();
    else row.nextElementSibling.querySelector("input").focus();
  });
  for (const input of [first, second]) {
    input.addEventListener("input", tidyRows);
    onPasteLines(input, (lines) => pasteRows(row, lines));
  }
  fill(first, head);
  fill(second, tail);
  return row;
}

function removeRow(row) {
  const next = row.nextElementSibling || row.previousElementSibling;
  row.remove();
  tidyRows();
  next?.querySelector("input").focus();
  changed();
}

function pasteRows(firstRow, lines) {
  const rows = [...$("references").children];
  const start = rows.indexOf(firstRow);
  lines.forEach((line, i) => {
    const names = line.split(line.includes("\t") ? "\t" : /\s*(?:=>|→)\s*/);
    inputsOf(rows[start + i] || addRow()).forEach((input, end) => {
      const name = (names[end] || "").trim();
      fill(input, name ? entityNamed(name) : null);
    });
  });
  tidyRows();
  changed();
  announce(`${plural(lines.length, "row")} pasted.`);
  if (project) saveReferences();
}

// Keeps one empty row at the end, and shows names in full that are cut off or that two entities share.
function tidyRows() {
  const last = referenceInputs().at(-1);
  if (!last || last.some((input) => input.value.trim())) addRow();
  for (const row of $("references").children) {
    const empty = inputsOf(row).every((input) => !input.value);
    row.querySelector(".remove").style.visibility = empty ? "hidden" : "";
  }
  showFullNames();
}

function showFullNames() {
  const entities = referenceInputs().flat().map(chosen);
  for (const row of $("references").children) {
    const pair = inputsOf(row).map(chosen);
    const names = pair.map((entity) => (entity ? distinctName(entity, entities) : "…"));
    const cut = inputsOf(row).some(
      (input) => document.activeElement !== input && input.scrollWidth > input.clientWidth + 1,
    );
    const ambiguous = pair.some((entity, i) => entity && names[i] !== entity.name);
    const line = row.querySelector(".full-names");
    line.hidden = !cut && !ambiguous;
    line.textContent = line.hidden ? "" : names.join(" → ");
  }
}

on("project", () => showReferences(enteredReferences()));
addEventListener("resize", showFullNames);
$("references").addEventListener("focusout", () => setTimeout(showFullNames));

// In a project, moves the complete rows of the form to its references.
export async function storeReferences() {
  const pairs = completeReferences();
  if (!project || !pairs.length) return;
  const decisions = pairs.map(([head, tail]) => ({
    head: head.id,
    tail: tail.id,
    decision: "reference",
  }));
  await enqueue(async () => {
    await storeDecisions(decisions);
    await readDecisions();
  });
  showReferences(enteredReferences().filter((pair) => !pair.every(Boolean)));
  announce(`${plural(pairs.length, "reference")} added.`);
}

async function saveReferences() {
  clearProblem();
  try {
    await storeReferences();
    referenceInputs()[0][0].focus();
    emit("references");
  } catch (error) {
    showProblem(error);
  }
}
