// Events between the modules of the page:
//
// project     another project was opened, or none; {keepList: whether the listed suggestions are its own}
// decisions   decisions of the project changed; the changed ones, or undefined if any may have changed
// undone      a decision was undone; its pair
// references  references were added to the project
// head        an entity is to become a head of the question; {id, name}

const target = new EventTarget();

export const emit = (name, detail) => target.dispatchEvent(new CustomEvent(name, { detail }));

export const on = (name, listener) =>
  target.addEventListener(name, (event) => listener(event.detail));
