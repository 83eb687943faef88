// What the drawings of Cytoscape.js share: how it is loaded, and the colours and the font of the page.

const NAMES = ["ink", "soft", "paper", "raised", "ground", "accent", "edge"];
const KINDS = Array.from({ length: 9 }, (_, i) => `kind-${i}`);

export const coloursOf = (css) =>
  Object.fromEntries(
    [...NAMES, ...KINDS].map((name) => [name, css.getPropertyValue(`--${name}`).trim()]),
  );

// The style of text on a ground of this colour.
export const textStyle = (css, size, ground) => ({
  color: coloursOf(css).ink,
  "font-family": css.fontFamily,
  "font-size": size,
  "text-background-color": ground,
  "text-background-opacity": 0.9,
  "text-background-padding": 1,
  "overlay-opacity": 0,
});

// Loads Cytoscape.js and makes a drawing in an element, whose styles follow the theme of the system.
export async function cytoscapeIn(container, stylesOf, options) {
  const { default: cytoscape } = await import("./cytoscape-3.34.4.min.js");
  const cy = cytoscape({
    container,
    autoungrabify: true,
    autounselectify: true,
    boxSelectionEnabled: false,
    ...options,
  });
  const restyle = () => cy.style(stylesOf(getComputedStyle(container)));
  restyle();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", restyle);
  return cy;
}
