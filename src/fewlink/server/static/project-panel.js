// The panel of the open project, its history, imports, and the lists of accepted and rejected pairs.

import { call, Problem } from "./api.js";
import { takeBack, undo } from "./decisions.js";
import { $, announce, attempt, button, element, showText } from "./dom.js";
import { endParts } from "./entity.js";
import { on } from "./events.js";
import { openExport } from "./export.js";
import { chooseProject } from "./form.js";
import { newProject } from "./new-project.js";
import {
  conflicts,
  curatorName,
  decisionsOf,
  project,
  projectNotes,
  projects,
  readDecisions,
  VERBS,
} from "./project.js";
import { curator, saveCurator } from "./state.js";
import { asSentence, endText, formatCount, formatPercent, pairText, plural } from "./text.js";

const PAGE = 100; // pairs of a list that are shown at first
const HISTORY_PAGE = 300;
const LISTED_TAILS = 5; // of the accepted pairs
const FORMATS = {
  tsv: "csv",
  txt: "csv",
  csv: "csv",
  nt: "nt",
  ntriples: "nt",
  json: "json",
}; // of imports, by the ending of a file

let remaining = null; // {label, count}: suggestions that are left to decide on
let listed = PAGE;

export function showRemaining(label, count) {
  remaining = { label, count };
  showCounts();
}

export function showProjectChoice() {
  const none = projects.length ? "No project" : "No project yet";
  $("project-choice").replaceChildren(
    element("option", { value: "" }, none),
    ...projects.map(({ number, name }) => element("option", { value: number }, name)),
  );
  $("project-choice").value = project ? project.number : "";
}

function showPanel() {
  $("project-facts").hidden = $("project-tools").hidden = !project;
  showText(
    "project-hint",
    project
      ? project.description
      : "Decisions are stored in a project: one relation, its references and what you and others decide.",
  );
  $("project-references").hidden = !project;
  $("project-references").replaceChildren(
    ...decisionsOf("reference")
      .slice(0, PAGE)
      .map((pair) => pairItem(pair, "Remove the reference")),
  );
  showText("project-notes", projectNotes.map(asSentence).join(" "));
  showText("spread", "");
  showText("crowded", "");
  showCounts();
  showConflicts();
}

function showCounts() {
  if (!project) return;
  const counts = {
    References: project.references,
    Accepted: project.accepted,
    Rejected: project.rejected,
    ...(remaining ? { [remaining.label]: remaining.count } : {}),
  };
  const number = (label, text) =>
    element("div", { class: "number" }, element("dt", {}, label), element("dd", {}, text));
  const { right } = project.progress;
  $("counts").replaceChildren(
    ...Object.entries(counts).map(([label, count]) =>
      number(label.toLowerCase(), formatCount(count)),
    ),
    ...(right === null ? [] : [number("right so far", formatPercent(right))]),
  );
  showSpread();
}

// The tails of the accepted pairs, and a warning if one of them crowds out the rest.
function showSpread() {
  const { tails, distinct_tails: distinct, warning } = project.progress;
  const first = tails.slice(0, LISTED_TAILS);
  const others = distinct - first.length;
  const listed = first.map((one) => `${endText(one, "tail")} ${formatCount(one.accepted)}`);
  if (others > 0) listed.push(plural(others, "other"));
  showText("spread", distinct ? `Accepted tails: ${listed.join(" · ")}` : "");
  showText("crowded", warning ? asSentence(warning) : "");
}

function describeVote(decision) {
  const name = curatorName(decision.who);
  if (decision.kind === "reference") return `${name} added it as a reference`;
  return `${name} ${VERBS[decision.kind]} it`;
}

function showConflicts() {
  const disputed = conflicts();
  $("conflicts").hidden = !disputed.length;
  $("conflicts-title").textContent = plural(disputed.length, "conflict");
  $("conflicts-list").replaceChildren(
    ...disputed
      .slice(-PAGE)
      .reverse()
      .map((decision) =>
        element(
          "li",
          {},
          element("b", {}, pairText(decision)),
          `: ${describeVote(decision.conflict)}, then ${describeVote(decision)}.`,
        ),
      ),
  );
}

function pairItem(pair, action) {
  const inGraph = pair.known !== false;
  const parts = (end) => (inGraph ? endParts(pair, end) : [pair[`${end}_name`]]);
  const removal = button("×", {
    class: "remove",
    "aria-label": `${action} ${pairText(pair)}`,
    title: action,
    onclick: () => takeBack([pair.number]),
  });
  return element(
    "li",
    {},
    element(
      "span",
      {},
      ...parts("head"),
      " → ",
      ...parts("tail"),
      inGraph ? null : element("span", { class: "badge" }, "not in this graph"),
      pair.who && pair.who !== curator() ? element("small", { class: "by" }, ` ${pair.who}`) : null,
    ),
    removal,
  );
}

function showDecided() {
  const accepted = decisionsOf("accepted").reverse();
  const rejected = decisionsOf("rejected").reverse();
  const items = (pairs) => pairs.slice(0, listed).map((pair) => pairItem(pair, "Undo"));
  $("accepted").hidden = !accepted.length && !rejected.length;
  $("accepted-count").textContent = formatCount(accepted.length);
  showText("to-accepted", accepted.length ? `${formatCount(accepted.length)} accepted` : "");
  $("accepted-list").replaceChildren(...items(accepted));
  $("rejected").hidden = !rejected.length;
  $("rejected-title").textContent = `Rejected: ${formatCount(rejected.length)}`;
  $("rejected-list").replaceChildren(...items(rejected));
  $("show-more").hidden = Math.max(accepted.length, rejected.length) <= listed;
}

async function showHistory() {
  const { log } = await call(`projects/${project.number}/log`);
  const undone = new Set(log.map((event) => event.undoes));
  const newest = log.slice(-HISTORY_PAGE).reverse();
  $("history-list").replaceChildren(
    ...newest.map((event) => historyItem(event, undone.has(event.number))),
  );
  $("history-note").textContent =
    log.length > HISTORY_PAGE
      ? `The last ${HISTORY_PAGE} of ${formatCount(log.length)} entries, newest first. The JSON export contains all of them.`
      : `${plural(log.length, "entry", "entries")}, newest first.`;
  if (!$("history").open) $("history").showModal();
}

function historyItem(event, undone) {
  const time = new Date(event.time).toLocaleString("en-GB", {
    dateStyle: "medium",
    timeStyle: "short",
  });
  const undoing = button("Undo", {
    class: "quiet",
    "aria-label": `Undo ${pairText(event)}`,
    onclick: async () => {
      await takeBack([event.number]);
      await showHistory();
    },
  });
  return element(
    "li",
    { class: undone ? "undone" : null },
    element(
      "span",
      {},
      element("b", {}, event.who === curator() ? "You" : event.who || "No name"),
      ` ${VERBS[event.kind]} ${pairText(event)} `,
      element("small", {}, time),
    ),
    event.kind === "undo" || undone ? null : undoing,
  );
}

async function importFile(file) {
  const format = FORMATS[file.name.split(".").at(-1).toLowerCase()];
  if (!format) {
    throw new Problem({
      message: `${file.name}: the file name must end in .tsv, .csv, .nt or .json.`,
    });
  }
  const body = { format, text: await file.text(), who: curator() };
  const answer = await call(`projects/${project.number}/import`, body);
  await readDecisions();
  const added = `Added ${formatCount(answer.added)} of ${plural(answer.read, "decision")} from ${file.name}.`;
  announce([added, ...answer.notes.map(asSentence)].join(" "));
}

const attempted = (action) => attempt("project-problem", action);

on("project", () => {
  remaining = null;
  showProjectChoice();
  showPanel();
  showDecided();
});
on("decisions", () => {
  showPanel();
  showDecided();
});

$("project-choice").addEventListener(
  "change",
  attempted(() => chooseProject(Number($("project-choice").value) || null)),
);
$("project-new").addEventListener("click", () =>
  newProject("A project collects pairs of one relation, with who accepted or rejected each."),
);
$("who").addEventListener("change", () => {
  saveCurator();
  showPanel();
  showDecided();
});
$("undo").addEventListener("click", undo);
$("history-open").addEventListener("click", attempted(showHistory));
$("export-open").addEventListener("click", attempted(openExport));
$("import").addEventListener("click", () => $("import-file").click());
$("import-file").addEventListener(
  "change",
  attempted(async () => {
    const [file] = $("import-file").files;
    if (file) await importFile(file).finally(() => ($("import-file").value = ""));
  }),
);
$("show-more").addEventListener("click", () => {
  listed += 1000;
  showDecided();
});
showPanel();
showDecided();
