// Accepting, rejecting and undoing. A decision without an open project asks for a new one first.

import { offline } from "./api.js";
import { announce } from "./dom.js";
import { emit } from "./events.js";
import { newProject } from "./new-project.js";
import {
  enqueue,
  forgetAct,
  lastAct,
  project,
  storeDecisions,
  undoEvents,
  whoDid,
} from "./project.js";
import { pairText } from "./text.js";

// Stores a decision on some pairs, all or none; resolves to whether it was stored.
export function decide(pairs, kind) {
  return enqueue(async () => {
    try {
      const why = "Decisions are stored in a project. Create one to store this decision.";
      if (!project && !(await newProject(why))) return false;
      const stored = await storeDecisions(
        pairs.map(({ head, tail, base_probability: probability }) => ({
          head,
          tail,
          decision: kind,
          ...(Number.isFinite(probability) ? { probability } : {}),
        })),
      );
      if (!stored) return false;
      const verb = kind === "accepted" ? "Accepted" : "Rejected";
      const disputed = stored.find((one) => one.conflict);
      if (disputed)
        announce(`${verb}, but ${whoDid(disputed.conflict)} ${pairText(disputed)} before.`);
      else if (pairs.length === 1) announce(`${verb}: ${pairText(pairs[0])}.`);
      else announce(`${verb} ${pairs.length} pairs. Press U to undo.`);
      return true;
    } catch (error) {
      announce(`Not stored: ${error.message}`);
      return false;
    }
  });
}

// Undoes events by their numbers, or this curator's last decision; resolves to the undone decision or null.
export function takeBack(numbers) {
  return enqueue(async () => {
    try {
      return await undoEvents(numbers);
    } catch (error) {
      announce(`Not undone: ${error.message}`);
      return null;
    }
  });
}

// Undoes the last act of this curator on this page, or else their last decision.
export function undo() {
  return enqueue(async () => {
    if (!project) {
      announce("Nothing to undo: no project is open.");
      return;
    }
    const act = lastAct();
    try {
      emit("undone", await undoEvents(act));
    } catch (error) {
      if (!offline) forgetAct(act); // the next undo is about the one before
      announce(`Not undone: ${error.message}`);
    }
  });
}
