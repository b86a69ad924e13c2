// Builds elements. Text goes in as text, never as markup: the page shows what others wrote.

export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child != null && child !== ""));
  return node;
}

export const byId = (id) => document.getElementById(id);

export const counted = (count) => count.toLocaleString("en-US");

/** A button that leads to a turn, wherever it stands. */
export const turnLink = (turnId) =>
  element("button", { class: "link", "data-turn": turnId, title: `Show ${turnId}` }, turnId);

/** An attribute only if it differs: a thousand rows are updated after each answer. */
export function assign(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Draws whenever the size of the canvas or the colours change. */
export function keepDrawn(canvas, draw) {
  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

/** A pen for the canvas, which is made as fine as the screen, and a function that reads the page's colours. */
export function penFor(canvas) {
  canvas.width = canvas.clientWidth * devicePixelRatio;
  canvas.height = canvas.clientHeight * devicePixelRatio;
  const pen = canvas.getContext("2d");
  pen.scale(devicePixelRatio, devicePixelRatio);
  const style = getComputedStyle(document.documentElement);
  return [pen, (name) => style.getPropertyValue(`--${name}`)];
}
