// Opening a file of one's own as a new graph: dropped on the start page or chosen, previewed, then opened.

import { about, call, sendFile } from "./api.js";
import { $, element } from "./dom.js";
import { asSentence, formatBytes, formatCount } from "./text.js";

let file = null; // the file in the dialog
let previews = 0;

// Shows the door for files if the server opens any, and the graphs that were opened from files.
export async function showOpenDoor() {
  $("home-door").hidden = !/\/graphs\/[^/]+\/$/.test(location.pathname);
  $("open-door").hidden = !about.limits.upload;
  if (!about.limits.upload) return;
  $("drop-hint").textContent =
    `Drop a table of triples, RDF or JSON lines here, up to ${formatBytes(about.limits.upload)}.`;
  const { graphs } = await call("graphs");
  $("graphs-list").replaceChildren(
    ...graphs.map((graph) => element("li", {}, element("a", { href: graph.address }, graph.file))),
  );
}

function openDialog(chosen) {
  if (!chosen) return;
  file = chosen;
  $("open-file-title").textContent = `Open ${file.name}`;
  $("open-file-columns").value = "";
  $("open-file-skip").checked = $("open-file-literals").checked = false;
  if (!$("open-file").open) $("open-file").showModal();
  showPreview();
}

// The columns as typed, or as pasted from an error: with the name of the option, and in quotes.
const columns = () =>
  $("open-file-columns")
    .value.trim()
    .replace(/^--columns(?:\s+|=)/, "")
    .replace(/^(['"])(.*)\1$/, "$2");

const options = () => ({
  name: file.name,
  columns: columns(),
  on_error: $("open-file-skip").checked ? "skip" : "stop",
  literals: $("open-file-literals").checked ? "keep" : "drop",
});

const send = (path) => sendFile(`${path}?${new URLSearchParams(options())}`, file);

function showFailure(error) {
  $("open-file-status").textContent = "";
  $("open-file-problem").textContent = error.message;
  $("open-file-problem").hidden = false;
}

async function showPreview() {
  const number = ++previews;
  $("open-file-problem").hidden = true;
  $("open-file-status").textContent = "Reading…";
  $("open-file-open").disabled = true;
  try {
    if (file.size > about.limits.upload) {
      throw new Error(
        `The file has ${formatBytes(file.size)}; this server opens files of up to ${formatBytes(about.limits.upload)}.`,
      );
    }
    const facts = await send("graphs/preview");
    if (number !== previews) return;
    showFacts(facts);
    $("open-file-open").disabled = false;
  } catch (error) {
    if (number !== previews) return;
    $("open-file-preview").hidden = true;
    showFailure(error);
  }
}

function showFacts({ counts, first_triples: triples, notes, problems, ...how }) {
  const { triples: count, entities, relations } = counts;
  $("open-file-status").textContent =
    `${formatCount(count)} triples, ${formatCount(entities)} entities, ${formatCount(relations)} relations.`;
  const facts = {
    Format: [how.format, how.encoding].filter(Boolean).join(", "),
    Separator: how.separator,
    Header: how.header ? how.names.filter(Boolean).join(", ") : how.names.length ? "none" : "",
    Columns: Object.entries(how.columns)
      .map(([role, column]) => `${role}: ${column}`)
      .join(", "),
    "Not read": how.ignored.join(", "),
  };
  $("open-file-facts").replaceChildren(
    ...Object.entries(facts)
      .filter(([, value]) => value)
      .map(([name, value]) =>
        element("div", {}, element("dt", {}, name), element("dd", {}, value)),
      ),
  );
  $("open-file-triples").tBodies[0].replaceChildren(
    ...triples.map((triple) => element("tr", {}, ...triple.map((name) => element("td", {}, name)))),
  );
  $("open-file-notes").replaceChildren(
    ...[...notes, ...problems].map((note) => element("li", {}, asSentence(note))),
  );
  $("open-file-preview").hidden = false;
}

async function open() {
  $("open-file-problem").hidden = true;
  $("open-file-status").textContent = "Opening…";
  $("open-file-open").disabled = true;
  try {
    const { address } = await send("graphs");
    location.assign(address);
  } catch (error) {
    showFailure(error);
    $("open-file-open").disabled = false;
  }
}

const carriesFiles = (event) =>
  Boolean(about?.limits.upload) && [...event.dataTransfer.types].includes("Files");

let typing = 0;
$("choose-file").addEventListener("click", () => $("graph-file").click());
$("graph-file").addEventListener("change", () => {
  openDialog($("graph-file").files[0]);
  $("graph-file").value = "";
});
$("open-file-columns").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(showPreview, 400);
});
for (const id of ["open-file-skip", "open-file-literals"]) {
  $(id).addEventListener("change", showPreview);
}
$("open-file-cancel").addEventListener("click", () => $("open-file").close());
$("open-file-form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!$("open-file-open").disabled) open();
});
addEventListener("dragover", (event) => {
  if (!carriesFiles(event)) return;
  event.preventDefault();
  $("drop").classList.add("over");
});
addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) $("drop").classList.remove("over");
});
addEventListener("drop", (event) => {
  if (!carriesFiles(event)) return;
  event.preventDefault();
  $("drop").classList.remove("over");
  openDialog(event.dataTransfer.files[0]);
});
