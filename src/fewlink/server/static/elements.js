// Elements made from data: text never becomes markup.

const $ = id => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

function dress(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}

const make = (tag, attributes, ...children) => dress(document.createElement(tag), attributes, children);
const draw = (tag, attributes, ...children) => dress(document.createElementNS(SVG, tag), attributes, children);

const plural = (count, one, many) => `${count.toLocaleString("en")} ${count === 1 ? one : many || one + "s"}`;
const sentenceOf = text => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
const percent = chance => chance > 0 && chance < 0.01 ? "< 1 %" : chance < 1 && chance > 0.99 ? "> 99 %" : `${Math.round(100 * chance)} %`;
const figure = (value, sign = "") => `${value < 0 ? "−" : sign}${Math.abs(value).toFixed(2)}`;

function say(text) {
  $("status").textContent = text;
}

function complain(input, message) {
  // Shows a message beside a field and goes there; null removes it.
  const part = $(`${input.id}-problem`);
  part.textContent = message || "";
  part.hidden = !message;
  if (!message) return input.removeAttribute("aria-invalid");
  input.setAttribute("aria-invalid", "true");
  input.focus();
}
