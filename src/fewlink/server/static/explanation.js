// The reasons of a prediction: one sentence and a drawing; unfolded, the score as a sum, and in words what these do not
// show.

import { call } from "./api.js";
import { $, element } from "./dom.js";
import { relationName } from "./form.js";
import { showNeighbourhood } from "./neighbourhood.js";
import { drawPaths } from "./paths.js";
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

let unfolded = false; // whether details are shown, for this pair and the next

function reasonElements(reasons, width) {
  const drawing = drawPaths(reasons, { relation: relationName(), width });
  const title = titleOf(reasons, drawing);
  const elements = [element("p", { class: "lead" }, reasons.sentences[0])];
  if (drawing.picture) {
    const onclick = () => enlarge(reasons, title);
    const explore = () => showNeighbourhood(reasons.head.id, reasons);
    const buttons = [
      element("button", { type: "button", class: "quiet", onclick }, "Enlarge"),
      element("button", { type: "button", class: "quiet", onclick: explore }, "Explore the graph"),
    ];
    elements.push(element("h4", {}, title));
    elements.push(element("div", { class: "drawing" }, drawing.picture, ...buttons));
  }
  const details = detailElements(reasons, drawing);
  if (details.length) {
    const fold = element("details", {}, element("summary", {}, "Details"), ...details);
    fold.open = unfolded;
    fold.addEventListener("toggle", () => (unfolded = fold.open));
    elements.push(fold);
  }
  return elements;
}

function detailElements(reasons, drawing) {
  const elements = [];
  if (Object.keys(reasons.parts).length) {
    const title = `The score of ${formatScore(reasons.score)} is the sum of`;
    elements.push(element("h4", {}, title), bars(reasons.parts));
  }
  const sentences = otherSentences(reasons, drawing);
  if (sentences.length) {
    const items = sentences.map((text) => element("li", {}, text));
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

// The sentences that say more than the first one, the drawing and the bars.
function otherSentences(reasons, drawing) {
  const neighbourText = (one) => `${stepText(one)} ${one.entity.name}`;
  const visible = [...drawing.paths.map(pathText), ...drawing.neighbours.map(neighbourText)];
  if (Object.keys(reasons.parts).length) visible.push(" has a score of ");
  const sentences = reasons.details
    .slice(1)
    .filter((sentence) => !visible.some((text) => sentence.includes(text)));
  const more = drawing.neighbours.length
    ? reasons.neighbours.filter((one) => one.weight > 0 && !drawing.neighbours.includes(one))
    : [];
  if (more.length) {
    const texts = more.map((one) => `${reasons[one.of].name} ${neighbourText(one)}`);
    sentences.push(`Further neighbours: ${texts.join("; ")}.`);
  }
  return sentences;
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
