// Elements made from data. Text is always inserted as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) node.style.setProperty(name, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// An HTML element. Attributes that start with "on" are listeners, with "--" are CSS properties.
export const element = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);

export const button = (text, attributes) =>
  element("button", { type: "button", ...attributes }, text);

export const svgElement = (tag, attributes, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

export const checkedValue = (name) => document.querySelector(`input[name=${name}]:checked`).value;

// Shows a text in an element; without one, the element is hidden.
export function showText(id, text) {
  $(id).textContent = text;
  $(id).hidden = !text;
}

// A listener that shows an error of its action in an element, such as one below the button.
export const attempt = (id, action) => async () => {
  showText(id, "");
  try {
    await action();
  } catch (error) {
    showText(id, error.message);
  }
};

const PASSING = 8000; // milliseconds that a message about an event is shown

let standing = ""; // what the page does or lists
let timer = 0;

function showStatus(text, live) {
  clearTimeout(timer);
  $("status").ariaLive = live ? "polite" : "off";
  $("status").textContent = text;
}

// Shows in the status line, which screen readers read out, what the page does or lists, until that changes.
export function setStatus(text) {
  standing = text;
  showStatus(text, true);
}

// Shows an event in the status line for some seconds.
export function announce(text) {
  showStatus(text, true);
  timer = setTimeout(() => showStatus(standing, false), PASSING);
}

// Shows an error below a field and moves the focus there; null removes the error.
export function showFieldError(input, message) {
  const error = $(`${input.id}-error`);
  error.textContent = message || "";
  error.hidden = !message;
  if (!message) {
    input.removeAttribute("aria-invalid");
    return;
  }
  input.setAttribute("aria-invalid", "true");
  input.focus();
}
