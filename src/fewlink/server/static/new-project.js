// The dialog that creates a project, with the references of the form.

import { call } from "./api.js";
import { $, announce, showFieldError } from "./dom.js";
import { arrange, readForm } from "./form.js";
import { loadProjects, openProject, project } from "./project.js";
import { completeReferences, showReferences } from "./references.js";
import { curator, saveCurator } from "./state.js";

// Opens the dialog; resolves to whether a project was created and opened.
export function newProject(why) {
  const references = project ? [] : completeReferences();
  const pairs = references.map(([head, tail]) => `${head.name} → ${tail.name}`);
  $("new-project-why").textContent = why;
  $("new-project-name").value = project ? "" : $("relation").value.trim();
  $("new-project-description").value = "";
  $("new-project-who").value = curator();
  $("new-project-references").textContent = pairs.length
    ? `References from the form: ${pairs.join("; ")}.`
    : "You can add references in the form later.";
  showFieldError($("new-project-name"), null);
  $("new-project").showModal();
  $("new-project-name").focus();
  return new Promise((resolve) => {
    let created = false;
    $("new-project-form").onsubmit = async (event) => {
      event.preventDefault();
      try {
        created = await create(references);
        if (created) $("new-project").close();
      } catch (error) {
        showFieldError($("new-project-name"), error.message);
      }
    };
    $("new-project").onclose = () => resolve(created);
  });
}

async function create(references) {
  const name = $("new-project-name").value.trim();
  if (!name) {
    showFieldError($("new-project-name"), "Enter a name for the project.");
    return false;
  }
  $("who").value = $("new-project-who").value;
  saveCurator();
  const relation = $("relation").value;
  const { number } = await call("projects", {
    name,
    description: $("new-project-description").value.trim(),
    references: references.map((pair) => pair.map((entity) => entity.id)),
    who: curator(),
  });
  showReferences([]);
  await loadProjects();
  await openProject(number, { keepList: !project });
  if (relation) $("relation").value = relation;
  readForm();
  arrange();
  announce(`Created the project ${name}.`);
  return true;
}
