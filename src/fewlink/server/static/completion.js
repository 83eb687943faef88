// Text fields that complete the names of entities and types.

import { element } from "./dom.js";

const MARGIN = 12; // pixels between a list and the end of the window
const DELAY = 110; // milliseconds after the last letter before offers are requested

let fields = 0;

export const entityNamed = (name) => ({ id: name, name });

// The entity that was picked in a field; its text as a name if none was; null if it is empty.
export function chosen(input) {
  const text = input.value.trim();
  if (!text) return null;
  return input.picked?.name === text ? input.picked : entityNamed(text);
}

export const fullName = (entity) =>
  [entity.name, entity.id !== entity.name ? entity.id : "", entity.hint]
    .filter(Boolean)
    .join(" · ");

export function fill(input, entity) {
  input.picked = entity;
  input.value = entity ? entity.name : "";
  input.title = entity ? fullName(entity) : ""; // fields are narrow
  input.removeAttribute("aria-invalid");
}

// The name of an entity, with a hint or its id if another one of `others` has the same name.
export function distinctName(entity, others) {
  const namesakes = others.filter(
    (other) => other && other.name === entity.name && other.id !== entity.id,
  );
  if (!namesakes.length) return entity.name;
  const telling = entity.hint && namesakes.every((other) => other.hint !== entity.hint);
  return `${entity.name} (${telling ? entity.hint : entity.id})`;
}

// Makes a field a combobox. `search(text, signal)` gives the offers; `onPick(offer)` follows a choice.
export function addCompletion(input, search, onPick) {
  const id = `offers-${++fields}`;
  const list = element("ul", {
    class: "offers",
    id,
    role: "listbox",
    "aria-label": "Matches",
    hidden: true,
  });
  const attributes = {
    role: "combobox",
    "aria-autocomplete": "list",
    "aria-expanded": "false",
    "aria-controls": id,
    autocapitalize: "off",
    spellcheck: "false",
    enterkeyhint: "next",
  };
  input.after(list);
  for (const [name, value] of Object.entries(attributes)) input.setAttribute(name, value);
  let offers = [];
  let selected = -1;
  let timer = 0;
  let pending = null;

  function close() {
    clearTimeout(timer);
    pending?.abort();
    list.hidden = true;
    select(-1);
    input.setAttribute("aria-expanded", "false");
  }

  function select(index) {
    selected = index;
    [...list.children].forEach((item, i) =>
      item.setAttribute("aria-selected", String(i === index)),
    );
    if (index < 0) {
      input.removeAttribute("aria-activedescendant");
      return;
    }
    input.setAttribute("aria-activedescendant", list.children[index].id);
    list.children[index].scrollIntoView({ block: "nearest" });
  }

  function move(by) {
    if (selected < 0) select(by > 0 ? 0 : offers.length - 1);
    else select((selected + by + offers.length) % offers.length);
  }

  function pick(offer) {
    fill(input, offer);
    close();
    onPick(offer);
  }

  function offerItem(offer, index) {
    const hasNamesake = offers.filter((other) => other.name === offer.name).length > 1;
    const details = [
      offer.id.replaceAll("_", " ") !== offer.name ? offer.id : "",
      hasNamesake ? offer.hint : "",
    ];
    const remark = offer.remark || details.filter(Boolean).join(" · ");
    const onmousedown = (event) => {
      event.preventDefault();
      pick(offer);
    };
    return element(
      "li",
      { role: "option", id: `${id}-${index}`, "aria-selected": "false", onmousedown },
      offer.name,
      remark ? element("small", {}, remark) : null,
    );
  }

  async function showOffers() {
    pending?.abort();
    pending = new AbortController();
    try {
      offers = await search(input.value.trim(), pending.signal);
    } catch {
      return; // replaced by a newer request, or failed
    }
    list.replaceChildren(...offers.map(offerItem));
    list.hidden = !offers.length || document.activeElement !== input;
    placeList();
    input.setAttribute("aria-expanded", String(!list.hidden));
    select(-1);
  }

  // Opens the list above the field if there is more room.
  function placeList() {
    const { top, bottom } = input.getBoundingClientRect();
    const below = innerHeight - bottom;
    list.classList.toggle("above", below < list.offsetHeight + MARGIN && top > below);
  }

  input.addEventListener("input", () => {
    input.removeAttribute("aria-invalid");
    clearTimeout(timer);
    if (input.value.trim()) timer = setTimeout(showOffers, DELAY);
    else close();
  });
  input.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.isComposing) return;
    const open = !list.hidden;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (open) move(event.key === "ArrowDown" ? 1 : -1);
      else showOffers();
    } else if (event.key === "Escape" && open) {
      event.preventDefault();
      close();
    } else if (event.key === "Enter") {
      event.preventDefault(); // only the button and Ctrl+Enter submit the form
      if (open && selected >= 0) pick(offers[selected]);
      else if (input.value.trim()) pick(chosen(input));
    } else if (event.key === "Tab" && open && selected >= 0) fill(input, offers[selected]);
  });
  input.addEventListener("blur", close);
}

// Passes the lines of pasted text to `take` if there are several, or columns.
export function onPasteLines(input, take) {
  input.addEventListener("paste", (event) => {
    const text = event.clipboardData.getData("text");
    const lines = text.split(/\r\n|\r|\n/).filter((line) => line.trim());
    if (lines.length < 2 && !text.includes("\t")) return;
    event.preventDefault();
    take(lines);
  });
}
