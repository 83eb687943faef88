// The reasons of a prediction: a drawing of the best paths; unfolded, all paths as text and the score as a sum.

import { call } from "./api.js";
import { button, element } from "./dom.js";
import { relationName } from "./form.js";
import { showNeighbourhood } from "./neighbourhood.js";
import { reasonsDrawing } from "./reasons-drawing.js";
import { formatScore, formatSigned } from "./text.js";

const shown = new WeakMap(); // {reasons, width} by the element that shows them

// Draws reasons again when there is another width for them, as there is when they were drawn while hidden.
const widths = new ResizeObserver((changes) => {
  for (const { target } of changes) {
    const { reasons, width } = shown.get(target);
    if (target.clientWidth && target.clientWidth !== width) showReasons(target, reasons);
  }
});

// Fills an element with the reasons of a pair; resolves to whether there are any.
export async function loadReasons(container, query, { head, tail }) {
  container.replaceChildren(element("p", { class: "hint" }, "Loading reasons…"));
  try {
    const reasons = await call("explain", { ...query, head, tail });
    if (!container.isConnected) return false;
    showReasons(container, reasons);
    widths.observe(container);
    return true;
  } catch (error) {
    container.replaceChildren(element("p", { class: "problem" }, error.message));
    return false;
  }
}

function showReasons(container, reasons) {
  const style = getComputedStyle(container);
  const { clientWidth: width } = container;
  const room = width - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  shown.set(container, { reasons, width });
  container.replaceChildren(...reasonElements(reasons, Math.max(240, Math.min(760, room))));
}

let unfolded = false; // whether details are shown, for this pair and the next

function reasonElements(reasons, width) {
  const { parts, paths, notes, lines, score } = reasons;
  const drawing = reasonsDrawing(reasons, relationName(), width);
  if (!drawing) return [lineList(lines.length ? lines : ["The graph has no path between them."])];
  const onclick = () => showNeighbourhood(reasons.head.id, reasons);
  const explore = button("Explore the graph", { class: "quiet explore", onclick });
  const elements = [drawing, ...(notes.length ? [lineList(notes)] : []), explore];
  const inWords = paths.length ? paths.map((path) => path.text + remark(path, reasons)) : lines;
  const details = [element("h4", {}, "In words"), lineList(inWords)];
  if (Object.keys(parts).length) {
    details.push(
      element("h4", {}, `The score of ${formatScore(score)} is the sum of`),
      bars(parts),
    );
  }
  const fold = element("details", {}, element("summary", {}, "Details"), ...details);
  fold.open = unfolded;
  fold.addEventListener("toggle", () => (unfolded = fold.open));
  return [...elements, fold];
}

const remark = ({ alike }, { compared }) =>
  alike ? ` · ${alike} of ${compared} references alike` : "";

const lineList = (lines) =>
  element("ul", { class: "lines" }, ...lines.map((line) => element("li", {}, line)));

function bars(shares) {
  const values = Object.values(shares);
  const low = Math.min(0, ...values);
  const span = Math.max(0, ...values) - low || 1;
  const length = (value) => `${((100 * value) / span).toFixed(2)}%`;
  const rows = Object.entries(shares).flatMap(([kind, value]) => {
    const bar = {
      class: value < 0 ? "share against" : "share",
      "aria-hidden": "true",
      "--from": length(Math.min(value, 0) - low),
      "--share": length(Math.abs(value)),
      "--zero": length(-low),
    };
    return [
      element("dt", {}, kind),
      element("dd", bar, element("i")),
      element("dd", {}, formatSigned(value)),
    ];
  });
  return element("dl", { class: "shares" }, ...rows);
}
