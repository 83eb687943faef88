// The reasons of a prediction: a drawing, bars of evidence, and in words what these do not show.

import { about, call } from "./api.js";
import { $, element } from "./dom.js";
import { relationName } from "./form.js";
import { captionOf, drawPaths, LEAST_WEIGHT } from "./paths.js";
import { formatScore, formatSigned, pathText, stepText } from "./text.js";

const shown = new WeakMap(); // reasons by the element that shows them

// Fills an element with the reasons of a pair; resolves to whether there are any.
export async function loadReasons(container, query, { head, tail }) {
  container.replaceChildren(element("p", { class: "hint" }, "Loading reasons…"));
  try {
    const reasons = await call("explain", { ...query, head, tail });
    if (!container.isConnected) return false;
    shown.set(container, reasons);
    showReasons(container);
    return true;
  } catch (error) {
    container.replaceChildren(element("p", { class: "problem" }, error.message));
    return false;
  }
}

function showReasons(container) {
  const style = getComputedStyle(container);
  const room =
    container.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  const width = Math.max(240, Math.min(760, room));
  container.replaceChildren(...reasonElements(shown.get(container), width));
}

function reasonElements(reasons, width) {
  const drawing = drawPaths(reasons, { relation: relationName(), width });
  const title = titleOf(reasons, drawing);
  const { lead, others } = sentencesOf(reasons, drawing);
  const enlargeButton = {
    type: "button",
    class: "quiet",
    onclick: () => enlarge(reasons, title),
  };
  const elements = [];
  if (lead) elements.push(element("p", { class: "lead" }, lead));
  if (drawing.picture) {
    const button = element("button", enlargeButton, "Enlarge");
    elements.push(element("h4", {}, title));
    elements.push(element("div", { class: "drawing" }, drawing.picture, button));
  }
  if (Object.keys(reasons.shares).length) {
    elements.push(element("h4", {}, `Evidence in the score of ${formatScore(reasons.score)}`));
    elements.push(evidenceBars(reasons.shares));
  }
  if (others.length) {
    const items = others.map((text) => element("li", {}, text));
    elements.push(element("h4", {}, "In words"), element("ul", { class: "sentences" }, ...items));
  }
  return elements;
}

function titleOf(reasons, { paths }) {
  if (paths.length) {
    return reasons.measured ? "Paths that support the score" : "Paths like those of the references";
  }
  return reasons.shared
    ? "What the tail shares with the references’ tails"
    : "Neighbours with the most attention";
}

const evidenceName = (kind) => about.evidence[kind] || kind;

function evidenceBars(shares) {
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
      element("dt", {}, evidenceName(kind)),
      element("dd", bar, element("i")),
      element("dd", {}, formatSigned(value)),
    ];
  });
  return element("dl", { class: "shares" }, ...rows);
}

// The sentences that say more than the row, the drawing and the bars: `lead` goes first.
function sentencesOf(reasons, drawing) {
  const shares = Object.entries(reasons.shares).map(([kind, value]) => {
    return `${evidenceName(kind)} (${value < 0 ? "-" : "+"}${Math.abs(value).toFixed(2)})`;
  });
  const neighbourText = (one) => `${stepText(one)} ${one.entity.name}`;
  const paths = reasons.paths.filter((path) => path.entities.length > 1);
  const visible = [...shares, ...paths.map(pathText), ...drawing.neighbours.map(neighbourText)];
  const isVisible = (sentence) => visible.some((text) => sentence.includes(text));
  const score = ` has a score of ${reasons.score.toFixed(2)}.`;
  const sentences = reasons.sentences.filter((sentence) => !sentence.endsWith(score));
  const [first = ""] = sentences;
  const hasLead =
    first.startsWith(reasons.head.name) && !shares.some((share) => first.includes(share));
  const lead = hasLead ? sentences.shift() : "";
  const others = sentences.filter((sentence) => !isVisible(sentence));
  const notDrawn = paths.filter(
    (path) => path.weight >= LEAST_WEIGHT && !drawing.paths.includes(path),
  );
  for (const path of notDrawn.slice(0, 2)) {
    others.push(`Another path: ${pathText(path)} (${captionOf(path, reasons)}).`);
  }
  const more = drawing.neighbours.length
    ? reasons.neighbours.filter((one) => one.weight > 0 && !drawing.neighbours.includes(one))
    : [];
  if (more.length) {
    const texts = more.map((one) => `${reasons[one.of].name} ${neighbourText(one)}`);
    others.push(`Further neighbours: ${texts.join("; ")}.`);
  }
  return { lead, others };
}

let drawEnlarged = () => {};

// Shows the drawing in a dialog that fills the window, with more paths and larger letters.
function enlarge(reasons, title) {
  $("enlarged-title").textContent = `${reasons.head.name} → ${reasons.tail.name}: ${title}`;
  $("enlarged").showModal();
  drawEnlarged = () => {
    const width = Math.max(720, $("enlarged-drawing").clientWidth); // a phone scrolls it
    const scale = width > 900 ? 1.25 : 1;
    const options = { relation: relationName(), width: width / scale, maxLanes: 8 };
    const { picture } = drawPaths(reasons, options);
    picture.style.setProperty("--wide", `${width}px`);
    $("enlarged-drawing").replaceChildren(picture);
  };
  drawEnlarged();
}

let windowWidth = innerWidth;
addEventListener("resize", () => {
  if ($("enlarged").open) drawEnlarged();
  if (innerWidth === windowWidth) return;
  windowWidth = innerWidth;
  for (const container of document.querySelectorAll(".reasons")) {
    if (shown.has(container)) showReasons(container);
  }
});
