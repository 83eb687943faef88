// Keyboard shortcuts of the page with suggestions. They work outside of text fields and dialogs.

import { judge, skip, toggleCardReasons } from "./decide.js";
import { undo } from "./decisions.js";
import { $ } from "./dom.js";
import { decideAndMove, focusCurrentRow, moveFocus, rowAt, toggleReasons } from "./list.js";
import { deciding } from "./state.js";
import { inWork } from "./views.js";

const TEXT_FIELDS = "input:not([type=radio], [type=checkbox]), select, textarea";
const REPEATABLE = ["j", "k", "ArrowDown", "ArrowUp"];

const CARD_KEYS = {
  a: () => judge("accepted"),
  r: () => judge("rejected"),
  s: skip,
  e: toggleCardReasons,
  u: undo,
};

const ROW_KEYS = {
  a: (row) => decideAndMove(row, "accepted"),
  r: (row) => decideAndMove(row, "rejected"),
  s: (row) => moveFocus(row, 1),
  e: toggleReasons,
  j: (row) => moveFocus(row, 1),
  k: (row) => moveFocus(row, -1),
  ArrowDown: (row) => moveFocus(row, 1),
  ArrowUp: (row) => moveFocus(row, -1),
};

function listAction(key, target) {
  if (key === "u") return undo;
  const row = rowAt(target);
  if (!row) return key === "j" || key === "k" ? focusCurrentRow : undefined;
  if (key === "Enter") return target === row.item ? () => toggleReasons(row) : undefined;
  return ROW_KEYS[key] && (() => ROW_KEYS[key](row));
}

function actionOf(event, key) {
  const { target } = event;
  const control = event.ctrlKey || event.metaKey;
  if (target.closest("dialog") || !inWork()) return undefined;
  if (control && key === "Enter") return () => $("query").requestSubmit();
  if (target.closest(TEXT_FIELDS) || event.altKey) return undefined;
  if (control) return key === "z" && !event.shiftKey ? undo : undefined;
  if (key === "?") return () => $("shortcuts").showModal();
  return deciding() ? CARD_KEYS[key] : listAction(key, target);
}

addEventListener("keydown", (event) => {
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const action = actionOf(event, key);
  if (!action) return;
  event.preventDefault();
  if (!event.repeat || REPEATABLE.includes(key)) action();
});
