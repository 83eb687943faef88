// Requests to the server: JSON in, JSON out, errors with the field they are about.

import { $, announce } from "./dom.js";
import { plural } from "./text.js";

const TOKEN = "fewlink:token";

// An error to show. `field` is the path of a field in the request, `suggestions` are entities to use instead.
export class Problem extends Error {
  constructor({ message, field, suggestions }) {
    super(message);
    this.field = field || "";
    this.suggestions = suggestions || [];
  }
}

export let offline = false; // whether the last request reached no server

function setOffline(value) {
  const banner = $("offline");
  if (banner && value !== offline) {
    banner.hidden = !value;
    if (!value) announce("The server is responding again.");
  }
  offline = value;
}

// The response of the server to JSON. Waits for a token if the server requires one; throws a Problem on
// an error.
export async function request(path, body, signal) {
  const headers = { Accept: "application/json" };
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method: body ? "POST" : "GET",
      headers,
      signal,
      body: body && JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    setOffline(true);
    throw new Problem({ message: "The server is not responding. Is it still running?" });
  }
  setOffline(false);
  if (response.status === 401) {
    await tokenEntered(Boolean(token));
    return request(path, body, signal);
  }
  if (response.ok) return response;
  let content = {};
  try {
    content = await response.json();
  } catch {
    // An error that did not come from fewlink, such as a proxy's.
  }
  throw new Problem(content.error || { message: `The server returned status ${response.status}.` });
}

export async function call(path, body, signal) {
  const response = await request(path, body, signal);
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({ message: "The server's response was cut off. Is it still running?" });
  }
}

let tokenDialog = null;

// Resolves when a token has been entered. All requests wait for the same dialog.
function tokenEntered(rejected) {
  tokenDialog ??= new Promise((resolve) => {
    $("locked-title").textContent = rejected ? "Wrong token" : "This server requires a token";
    $("locked").showModal();
    $("unlock").onsubmit = (event) => {
      event.preventDefault();
      sessionStorage.setItem(TOKEN, $("token").value);
      $("token").value = "";
      $("locked").close();
      tokenDialog = null;
      resolve();
    };
  });
  return tokenDialog;
}

$("locked").addEventListener("cancel", (event) => event.preventDefault());

export let about = null; // the server's model, graph and limits

export function setAbout(facts) {
  about = facts;
}

export const searchEntities = (text, signal) =>
  call(`entities?limit=8&q=${encodeURIComponent(text)}`, null, signal);

export async function searchTypes(text, signal) {
  const types = await call(`types?limit=12&q=${encodeURIComponent(text)}`, null, signal);
  return types.map(({ name, members }) => ({ id: name, name, remark: plural(members, "member") }));
}
