// The page of learned lines: yes, no or later for each, and what is agreed to is written.

import { byId, element, write } from "./dom.js";
import { openServer } from "./server.js";

const CHOICES = ["yes", "no", "later"];

function say(text, isProblem = false) {
  write(byId("status"), text);
  byId("status").className = `status shown${isProblem ? " problem" : ""}`;
}

const rows = () => [...document.querySelectorAll(".line")];
const keysOf = (choice) => rows().filter((row) => row.dataset.decided === choice).map((row) => row.dataset.key);

function decide(row, choice) {
  row.dataset.decided = choice;
  row.querySelector(`input[value="${choice}"]`).checked = true;
  write(byId("write"), `Write ${keysOf("yes").length} of ${rows().length}`);
}

function rowOf({ key, text, quote, cited }) {
  const choices = CHOICES.map((choice) =>
    element("label", {}, element("input", { type: "radio", name: key, value: choice }), ` ${choice}`));
  const row = element("fieldset", { class: "line", "data-key": key, "aria-label": text },
    element("div", { class: "text" }, text),
    element("blockquote", {}, quote, element("small", {}, cited)),
    element("div", { class: "choices" }, ...choices));
  row.addEventListener("change", (event) => decide(row, event.target.value));
  return row;
}

async function start() {
  const server = await openServer();
  const { project, lines, standing } = await server.lines();
  write(byId("project"), project);
  for (const heading of new Set(lines.map((line) => line.heading))) {
    const own = lines.filter((line) => line.heading === heading);
    byId("lines").append(element("section", {}, element("h2", {}, heading), ...own.map(rowOf)));
  }
  byId("standing").hidden = !standing;
  write(byId("standing").querySelector("pre"), standing);
  rows().forEach((row) => decide(row, "later"));
  document.body.classList.add("ready");
  byId("all").addEventListener("click", () => rows().forEach((row) => decide(row, "yes")));
  byId("write").addEventListener("click", () =>
    server.decide({ yes: keysOf("yes"), no: keysOf("no") }).then(({ message }) => {
      rows().filter((row) => row.dataset.decided !== "later").forEach((row) => { row.disabled = true; });
      say(message);
    }).catch((error) => say(error.message, true)));
  byId("finish").addEventListener("click", () =>
    server.finish().then(() => say("The command has ended; this page can be closed.")).catch((error) => say(error.message, true)));
}

start().catch((error) => say(error.message, true));
