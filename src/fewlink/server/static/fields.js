// Fields with completion, rows of references, chips of heads, and pasting.

let fields = 0;

const chosen = input => {
  // The entity picked in a field, or its text.
  const text = input.value.trim();
  if (!text) return null;
  return input.picked && input.picked.name === text ? input.picked : {id: text, name: text};
};

const fullName = entity => [entity.name, entity.id !== entity.name ? entity.id : "", entity.hint].filter(Boolean).join(" · ");

function fill(input, entity) {
  input.picked = entity;
  input.value = entity ? entity.name : "";
  input.title = entity ? fullName(entity) : ""; // fields are narrow
  input.removeAttribute("aria-invalid");
}

function completing(input, source, onPick) {
  const id = `offers-${++fields}`;
  const list = make("ul", {class: "offers", id, role: "listbox", "aria-label": "Suggestions", hidden: true});
  input.after(list);
  for (const [name, value] of Object.entries({role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false",
    "aria-controls": id, autocapitalize: "off", spellcheck: "false", enterkeyhint: "next"})) input.setAttribute(name, value);
  let offers = [], at = -1, timer = 0, asking = null;

  function close() {
    clearTimeout(timer);
    if (asking) asking.abort();
    list.hidden = true;
    at = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }
  function point(to) {
    at = offers.length ? (to + offers.length) % offers.length : -1;
    [...list.children].forEach((item, i) => item.setAttribute("aria-selected", String(i === at)));
    if (at < 0) return input.removeAttribute("aria-activedescendant");
    input.setAttribute("aria-activedescendant", list.children[at].id);
    list.children[at].scrollIntoView({block: "nearest"});
  }
  function pick(offer) {
    fill(input, offer);
    close();
    onPick(offer, input);
  }
  async function look() {
    if (asking) asking.abort();
    asking = new AbortController();
    try {
      offers = await source(input.value.trim(), asking.signal);
    } catch {
      return; // replaced by a newer request, or failed
    }
    const twice = name => offers.filter(offer => offer.name === name).length > 1;
    const remarkOf = offer => offer.remark || [offer.id.replaceAll("_", " ") !== offer.name ? offer.id : "", twice(offer.name) ? offer.hint : ""].filter(Boolean).join(" · ");
    list.replaceChildren(...offers.map((offer, i) => make("li", {
      role: "option", id: `${id}-${i}`, "aria-selected": "false",
      onmousedown: event => { event.preventDefault(); pick(offer); },
    }, offer.name, remarkOf(offer) ? make("small", {}, remarkOf(offer)) : null)));
    list.hidden = !offers.length || document.activeElement !== input;
    input.setAttribute("aria-expanded", String(!list.hidden));
    at = -1;
    input.removeAttribute("aria-activedescendant");
  }
  input.addEventListener("input", () => {
    input.removeAttribute("aria-invalid");
    clearTimeout(timer);
    if (input.value.trim()) timer = setTimeout(look, 110);
    else close();
  });
  input.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.isComposing) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) look();
      else point(at < 0 && event.key === "ArrowUp" ? -1 : at + (event.key === "ArrowDown" ? 1 : -1));
    } else if (event.key === "Escape" && !list.hidden) {
      event.preventDefault();
      close();
    } else if (event.key === "Enter") {
      event.preventDefault(); // only the button and Ctrl+Enter send the form
      if (!list.hidden && at >= 0) pick(offers[at]);
      else if (input.value.trim()) pick(chosen(input));
    } else if (event.key === "Tab" && !list.hidden && at >= 0) fill(input, offers[at]);
  });
  input.addEventListener("blur", close);
  return input;
}

const named = name => ({id: name, name});
const columns = line => line.split(line.includes("\t") ? "\t" : /\s*(?:=>|→)\s*/).map(part => part.trim());

function pasted(event, take) {
  const text = (event.clipboardData || window.clipboardData).getData("text");
  const lines = text.split(/\r\n|\r|\n/).filter(line => line.trim());
  if (lines.length < 2 && !text.includes("\t")) return;
  event.preventDefault();
  take(lines);
}

const pairs = () => [...$("references").children].map(row => [...row.querySelectorAll("input")]);

function addPair(head, tail) {
  const row = make("div", {class: "pair", role: "group", "aria-label": "Reference"});
  const [first, second] = ["Head", "Tail"].map(end =>
    make("input", {type: "text", maxlength: 500, "aria-label": `${end} of a reference`, placeholder: end}));
  const remove = make("button", {type: "button", class: "remove", "aria-label": "Remove this reference", onclick: () => {
    const next = row.nextElementSibling || row.previousElementSibling;
    row.remove();
    spare();
    if (next) next.querySelector("input").focus();
    changed();
  }}, "×");
  row.append(make("div", {class: "field"}, first), make("span", {"aria-hidden": "true"}, "→"),
    make("div", {class: "field"}, second), remove, make("p", {class: "more", hidden: true}));
  $("references").append(row);
  completing(first, entitiesLike, () => second.focus());
  completing(second, entitiesLike, () => {
    spare();
    if (project) return void addReferences();
    row.nextElementSibling.querySelector("input").focus();
  });
  for (const input of [first, second]) {
    input.addEventListener("input", () => { spare(); changed(); });
    input.addEventListener("paste", event => pasted(event, lines => pasteRows(row, lines)));
  }
  fill(first, head);
  fill(second, tail);
  return row;
}

function pasteRows(row, lines) {
  const rows = [...$("references").children];
  let at = rows.indexOf(row);
  for (const line of lines) {
    const [head, tail] = columns(line);
    const inputs = (rows[at] || addPair(null, null)).querySelectorAll("input");
    fill(inputs[0], head ? named(head) : null);
    fill(inputs[1], tail ? named(tail) : null);
    at += 1;
  }
  spare();
  changed();
  say(`${plural(lines.length, "row")} pasted`);
  if (project) addReferences();
}

async function addReferences() {
  // In a project, complete pairs are stored at once.
  problem(null);
  try {
    await storeReferences();
    pairs()[0][0].focus();
    if (deciding() && !card) nextPair(false);
  } catch (error) {
    problem(error);
  }
}

function spare() {
  // One empty row at the end, to type into.
  const last = pairs().at(-1);
  if (!last || last.some(input => input.value.trim())) addPair(null, null);
  for (const row of $("references").children)
    row.querySelector(".remove").style.visibility = [...row.querySelectorAll("input")].some(input => input.value) ? "" : "hidden";
  tellApart();
}

const telling = (entity, others) => {
  // The name of an entity; with a hint, or its id, if another one has the same name.
  const alike = others.filter(other => other && other.name === entity.name && other.id !== entity.id);
  if (!alike.length) return entity.name;
  const hint = entity.hint && alike.every(other => other.hint !== entity.hint) ? entity.hint : "";
  return `${entity.name} (${hint || entity.id})`;
};

function tellApart() {
  // Names that are cut in their field, or that two entities share, are shown in full below their row.
  const entities = pairs().flat().map(chosen);
  for (const row of $("references").children) {
    const inputs = [...row.querySelectorAll("input")], both = inputs.map(chosen), more = row.querySelector(".more");
    const texts = both.map(entity => entity ? telling(entity, entities) : "…");
    const cut = inputs.some(input => document.activeElement !== input && input.scrollWidth > input.clientWidth + 1);
    more.hidden = !cut && both.every((entity, i) => !entity || texts[i] === entity.name);
    more.textContent = more.hidden ? "" : texts.join(" → ");
  }
}
addEventListener("resize", () => tellApart());
$("references").addEventListener("focusout", () => setTimeout(tellApart));

function showPairs(references) {
  $("references").replaceChildren();
  for (const [head, tail] of references) addPair(head, tail);
  while (pairs().length < (project ? 1 : 2)) addPair(null, null);
  spare();
}

function addHead(entity) {
  if (state.heads.some(head => head.id === entity.id)) return;
  state.heads.push(entity);
  showHeads();
}

function showHeads() {
  $("heads").replaceChildren(...state.heads.map((head, place) => make("li", {title: fullName(head)}, telling(head, state.heads), make("button", {
    type: "button", class: "remove", "aria-label": `Remove ${head.name}`, onclick: () => {
      state.heads.splice(place, 1);
      showHeads();
      changed();
      $("head").focus();
    }}, "×"))));
}
