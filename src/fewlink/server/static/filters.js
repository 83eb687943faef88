// Which rows of the list are seen, and accepting all of them above a threshold.

const STATES = {
  open: kind => kind !== "rejected", undecided: kind => !kind, accepted: kind => kind === "accepted" || kind === "reference", rejected: kind => kind === "rejected",
};

let tailTypes = {}; // of the tails shown, by id

const meritOf = row => hasChance(row) ? 100 * row.probability : row.score; // what a threshold is compared with

function offerFilters(answer) {
  // Adapts the filters to a ranking.
  const rows = answer.predictions, kinds = [...new Set(Object.values(answer.tail_types || {}).flat())].sort();
  tailTypes = answer.tail_types || {};
  const kept = $("filter-type").value;
  $("filter-type").replaceChildren(make("option", {value: ""}, "any type"), ...kinds.map(kind => make("option", {value: kind}, kind.replaceAll("_", " "))));
  $("filter-type").value = kinds.includes(kept) ? kept : "";
  $("filter-type-part").hidden = kinds.length < 2;
  const chance = rows.some(hasChance);
  $("filter-least-label").textContent = chance ? "At least, %" : "Score at least";
  $("filters").hidden = !rows.length;
}

function isSeen(item) {
  const text = $("filter-text").value.trim().toLowerCase(), least = $("filter-least").value, kind = $("filter-type").value;
  return STATES[$("filter-state").value](decisionOn(item.pair))
    && (!text || `${item.pair.head_name}\n${item.pair.tail_name}\n${item.pair.head}\n${item.pair.tail}`.toLowerCase().includes(text))
    && (!kind || (tailTypes[item.pair.tail] || []).includes(kind))
    && (least === "" || meritOf(item.row) >= Number(least));
}

function applyFilters() {
  let seen = 0, left = 0;
  for (const item of allRows()) {
    item.hidden = !isSeen(item);
    seen += !item.hidden;
    left += !decisionOn(item.pair);
  }
  for (const group of $("found").querySelectorAll(".group")) group.hidden = !group.querySelector(".row:not([hidden])");
  const all = allRows().length;
  $("filter-count").textContent = seen < all ? `${seen.toLocaleString("en")} of ${all.toLocaleString("en")} shown.` : "";
  $("filter-none").hidden = seen > 0 || !all;
  $("bulk-open").disabled = !left;
  if (all && state.view === "list") countLeft(left, "Left in list");
}

const bulkRows = () => rows().filter(item => !decisionOn(item.pair) && meritOf(item.row) >= Number($("bulk-least").value)).slice(0, 1000);

function previewBulk() {
  const items = bulkRows(), amount = item => hasChance(item.row) ? percent(item.row.probability) : figure(item.row.score);
  $("bulk-list").replaceChildren(...items.map(item => make("li", {}, make("span", {}, pairText(item.pair)), make("small", {}, amount(item)))));
  $("bulk-count").textContent = items.length ? `${plural(items.length, "undecided pair")} of the list ${items.length === 1 ? "is" : "are"} at or above it:` : "No undecided pair of the list is that high.";
  $("bulk-accept").disabled = !items.length;
  $("bulk-accept").textContent = `Accept ${plural(items.length, "pair")}`;
}

function openBulk() {
  // Begins with a threshold that the best undecided pairs of the list reach.
  const merits = rows().filter(item => !decisionOn(item.pair)).map(item => meritOf(item.row)).sort((one, other) => other - one);
  const chance = rows().some(item => hasChance(item.row)), start = merits[Math.min(4, merits.length - 1)] ?? 0;
  $("bulk-label").textContent = chance ? "Probability of at least, in %" : "Score of at least";
  $("bulk-least").value = chance ? Math.floor(start) : Math.floor(100 * start) / 100;
  previewBulk();
  $("bulk").showModal();
  $("bulk-least").select();
}

$("filters").addEventListener("input", () => { applyFilters(); });
$("filters-clear").addEventListener("click", () => {
  for (const id of ["filter-text", "filter-least", "filter-type"]) $(id).value = "";
  $("filter-state").value = "open";
  applyFilters();
});
$("bulk-open").addEventListener("click", openBulk);
$("bulk-least").addEventListener("input", previewBulk);
$("bulk-cancel").addEventListener("click", () => $("bulk").close());
$("bulk-form").addEventListener("submit", async event => {
  event.preventDefault();
  const pairs = bulkRows().map(item => item.pair);
  $("bulk").close();
  if (pairs.length && await decide(pairs, "accepted")) say(`Accepted ${plural(pairs.length, "pair")}. U takes all of them back.`);
});
