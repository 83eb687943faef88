// Requests to the server: JSON in, JSON out, errors with the field they are about.

const TOKEN = "fewlink:token";

class Problem extends Error {
  constructor({message, field, suggestions}) {
    super(message);
    this.field = field || "";
    this.suggestions = suggestions || [];
  }
}

let unanswered = false; // whether the last request reached no server
const offline = () => unanswered;

function showOffline(gone) {
  const banner = $("offline");
  if (banner && gone !== unanswered) {
    banner.hidden = !gone;
    if (!gone) say("The server answers again.");
  }
  unanswered = gone;
}

async function request(path, body, signal) {
  // The answer of the server; asks for a token if one is needed, and throws a Problem for an error.
  const headers = {Accept: "application/json"};
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {method: body ? "POST" : "GET", headers, signal, body: body && JSON.stringify(body)});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    showOffline(true);
    throw new Problem({message: "The server does not answer. Is it still running?"});
  }
  showOffline(false);
  if (response.status === 401) {
    await unlocked(Boolean(token));
    return request(path, body, signal);
  }
  if (response.ok) return response;
  let content = {};
  try {
    content = await response.json();
  } catch {
    // not an error of this server's own form
  }
  throw new Problem(content.error || {message: `The server answered ${response.status}.`});
}

async function call(path, body, signal) {
  const response = await request(path, body, signal);
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({message: "The server's answer broke off. Is it still running?"});
  }
}

let unlocking = null;

function unlocked(wrong) {
  // Resolves when a token has been entered; all calls wait for the same dialog.
  unlocking = unlocking || new Promise(resolve => {
    $("locked-title").textContent = wrong ? "Wrong token" : "This server requires a token";
    $("locked").showModal();
    $("unlock").onsubmit = event => {
      event.preventDefault();
      sessionStorage.setItem(TOKEN, $("token").value);
      $("token").value = "";
      $("locked").close();
      unlocking = null;
      resolve();
    };
  });
  return unlocking;
}

$("locked").addEventListener("cancel", event => event.preventDefault());

const entitiesLike = (text, signal) => call(`entities?limit=8&q=${encodeURIComponent(text)}`, null, signal);
const typesLike = async (text, signal) =>
  (await call(`types?limit=12&q=${encodeURIComponent(text)}`, null, signal)).map(type => (
    {id: type.name, name: type.name, remark: plural(type.members, "member")}));
