// The dialog that saves the open project as a file, in one of the server's formats.

import { call, request } from "./api.js";
import { $, announce, element, showFieldError } from "./dom.js";
import { project } from "./project.js";

let formats = []; // of the server: name, title, about and suffixes

const chosen = () => formats.find(({ name }) => name === $("export-format").value);

export async function openExport() {
  if (!formats.length) {
    formats = (await call("formats")).formats;
    $("export-format").replaceChildren(
      ...formats.map(({ name, title }) => element("option", { value: name }, title)),
    );
  }
  $("export-relation").value = project.name;
  showFormat();
  $("export").showModal();
  $("export-format").focus();
}

function showFormat() {
  showFieldError($("export-format"), null);
  $("export-about").textContent = chosen().about;
  $("export-relation").disabled = chosen().name === "json";
}

async function save() {
  const { name: format, suffixes } = chosen();
  const relation = $("export-relation").value.trim() || project.name;
  const options = new URLSearchParams({ format, relation });
  const response = await request(`projects/${project.number}/export?${options}`);
  const name = project.name.replace(/[^\p{L}\p{N}_-]+/gu, "-").slice(0, 60) || "project";
  const url = URL.createObjectURL(await response.blob());
  element("a", { href: url, download: name + suffixes[0] }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
  announce(`Saved as ${name}${suffixes[0]}.`);
}

$("export-format").addEventListener("change", showFormat);
$("export-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await save();
    $("export").close();
  } catch (error) {
    showFieldError($("export-format"), error.message);
  }
});
