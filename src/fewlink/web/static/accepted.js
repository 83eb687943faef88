// Accepted triples: a list, and files to download.

const nameOf = triple => triple.relation || state.relation.trim();

function showAccepted() {
  $("accepted").hidden = !state.accepted.length;
  $("accepted-count").textContent = state.accepted.length ? state.accepted.length.toLocaleString("en") : "";
  $("to-accepted").hidden = !state.accepted.length;
  $("to-accepted").textContent = `${state.accepted.length.toLocaleString("en")} accepted`;
  $("accepted-list").replaceChildren(make("ul", {class: "triples"}, ...[...state.accepted].reverse().map(triple =>
    make("li", {}, make("span", {}, triple.head_name, make("em", {}, ` ${nameOf(triple) || "→"} `), triple.tail_name),
      make("button", {type: "button", class: "remove", "aria-label": `Remove ${triple.head_name} → ${triple.tail_name}`, onclick: () => {
        decisions.push({pair: triple, before: "yes"});
        decide(triple, "");
        showAccepted();
        rows().forEach(mark);
        say(`Removed: ${triple.head_name} → ${triple.tail_name}`);
      }}, "×")))));
}

const ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"};
const cell = text => text.replace(/[\\\t\n\r]/g, sign => ESCAPES[sign]);
const hex = sign => `%${sign.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`;
const escaped = address => address.replace(/[\u0000-\u0020<>"{}|^`\\\u007f-\u009f]/g, sign => sign.charCodeAt(0) < 128 ? hex(sign) : encodeURIComponent(sign));
const whole = text => text.replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "\ufffd");

function address(name, base) {
  // An IRI: the name if it is one, else the prefix and the name; invalid characters are percent-encoded.
  const text = whole(name);
  return `<${/^(?:https?:\/\/|urn:)\S/i.test(text) ? escaped(text) : escaped(whole(base)) + encodeURIComponent(text)}>`;
}

const asTsv = triples => triples.map(triple => [triple.head, nameOf(triple), triple.tail].map(cell).join("\t") + "\n").join("");
const asTriples = (triples, base) => triples.map(triple =>
  `${[triple.head, nameOf(triple), triple.tail].map(name => address(name, base)).join(" ")} .\n`).join("");

function download(text, ending, kind) {
  const name = [...new Set(state.accepted.map(nameOf))].join("-").replace(/[^\p{L}\p{N}_-]+/gu, "-").slice(0, 60) || "accepted";
  const url = URL.createObjectURL(new Blob([text], {type: `${kind};charset=utf-8`}));
  make("a", {href: url, download: `${name}.${ending}`}).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
  say(`${plural(state.accepted.length, "triple")} written to ${name}.${ending}`);
}

function exportable() {
  if (state.accepted.every(nameOf)) return true;
  complain($("relation"), "Name the relation: each exported triple needs one.");
  return false;
}

$("export-tsv").addEventListener("click", () => exportable() && download(asTsv(state.accepted), "tsv", "text/tab-separated-values"));
$("export-nt").addEventListener("click", () => {
  if (!exportable()) return;
  if (/^[a-z][a-z0-9+.-]*:./i.test(state.base)) return download(asTriples(state.accepted, state.base), "nt", "application/n-triples");
  $("base").closest("details").open = true;
  complain($("base"), "The prefix must begin with a scheme, such as http://example.org/");
});
$("base").addEventListener("input", () => { state.base = $("base").value.trim(); complain($("base"), null); keep(); });
