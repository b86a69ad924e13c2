// The page of a session: the curve of its prompts, what happened in it, and what it cost beside doing nothing.

import { byId, counted, element, keepDrawn, penFor, write } from "./dom.js";
import { openServer } from "./server.js";

const LEFT = 64;
const TOP = 12;
const BOTTOM = 22;

function say(text, isProblem = false) {
  write(byId("status"), text);
  byId("status").className = `status shown${isProblem ? " problem" : ""}`;
}

const prompts = ({ calls }) => [calls.map((call) => call.sent_tokens), calls.map((call) => call.history_tokens)];

const words = (name) => name.replaceAll("_", " ");

class Curve {
  constructor(canvas) {
    this.canvas = canvas;
    keepDrawn(canvas, () => this.draw());
    canvas.addEventListener("mousemove", (event) => this.name(event.offsetX));
    canvas.addEventListener("mouseleave", () => this.mark(0));
  }

  show(run) {
    this.run = run;
    [this.sent, this.history] = prompts(run);
    this.marked = 0;
    this.draw();
  }

  mark(call) {
    this.marked = call;
    const { sent, history } = this;
    write(byId("hover"), call ? `call ${counted(call)}: ${counted(sent[call - 1])} sent, ${counted(history[call - 1])} without` : "");
    this.draw();
  }

  name(x) {
    const count = this.sent.length;
    const share = (x - LEFT) / (this.canvas.clientWidth - LEFT);
    this.mark(count ? Math.max(1, Math.min(count, Math.round(share * (count - 1)) + 1)) : 0);
  }

  draw() {
    const { canvas, run, sent, history } = this;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!run || !width) return;
    const [pen, color] = penFor(canvas);
    const count = sent.length;
    const top = 1.05 * Math.max(1, run.limit_tokens, ...history);
    const x = (at) => LEFT + (count > 1 ? (at / (count - 1)) * (width - LEFT - 2) : 0);
    const y = (tokens) => TOP + (1 - tokens / top) * (height - TOP - BOTTOM);
    pen.font = `11px ${color("sans")}`;
    pen.textAlign = "right";
    const unit = 10 ** Math.floor(Math.log10(top)) / (top / 10 ** Math.floor(Math.log10(top)) < 3 ? 2 : 1);
    for (let tokens = 0; tokens < top; tokens += unit) {
      pen.fillStyle = color("line");
      pen.fillRect(LEFT, y(tokens), width - LEFT, 1);
      pen.fillStyle = color("muted");
      pen.fillText(counted(tokens), LEFT - 8, y(tokens) + 4);
    }
    pen.fillText(`${counted(count)} calls`, width - 2, height - 4);
    const line = (values, stroke, lineWidth) => {
      pen.beginPath();
      values.forEach((tokens, at) => pen.lineTo(x(at), y(tokens)));
      pen.strokeStyle = stroke;
      pen.lineWidth = lineWidth;
      pen.stroke();
    };
    line(history, color("faint"), 1.5);
    pen.beginPath();
    pen.moveTo(x(0), y(0));
    sent.forEach((tokens, at) => pen.lineTo(x(at), y(tokens)));
    pen.lineTo(x(count - 1), y(0));
    pen.fillStyle = color("accent-soft");
    pen.fill();
    line(sent, color("accent"), 2);
    pen.setLineDash([4, 4]);
    pen.strokeStyle = color("problem");
    pen.beginPath();
    pen.moveTo(LEFT, y(run.limit_tokens));
    pen.lineTo(width, y(run.limit_tokens));
    pen.lineWidth = 1;
    pen.stroke();
    pen.setLineDash([]);
    if (this.marked) {
      pen.fillStyle = color("text");
      pen.fillRect(x(this.marked - 1), TOP, 1, height - TOP - BOTTOM);
    }
  }
}

function showRun(run, curve) {
  const [prompt, history] = prompts(run);
  const [sent, without] = [sum(prompt), sum(history)];
  write(byId("saved"), without ? `${Math.round(100 * (1 - sent / without))}%` : "–");
  write(byId("saved-of"), "fewer prompt tokens");
  write(byId("summary"), `${counted(sent)} sent in ${counted(prompt.length)} calls, ${counted(without)} without`);
  write(byId("compactions"), counted(run.compactions.length));
  write(byId("peak"), counted(Math.max(0, ...prompt)));
  write(byId("limit"), counted(run.limit_tokens));
  const rows = Object.keys(run.cost).map((price) => bill(price, run.cost[price], run.cost_without[price]));
  if (run.money[0]) rows.push(bill("in money", run.dollars, run.dollars_without, run.money));
  byId("bill").tBodies[0].replaceChildren(...rows);
  byId("happenings").tBodies[0].replaceChildren(...run.compactions.map((own) => happening(own, curve)));
  const problems = [...run.violations, ...run.unrestorable];
  byId("problems").hidden = !problems.length;
  byId("problems").querySelector("ul").replaceChildren(...problems.map((text) => element("li", {}, text)));
  curve.show(run);
}

const sum = (values) => values.reduce((total, value) => total + value, 0);

const COLUMNS = [
  ["preset", ({ preset }) => preset],
  ["compactions", (run) => counted(run.compactions.length)],
  ["sent", (run) => counted(sum(prompts(run)[0]))],
  ["invalidated", (run) => counted(sum(run.calls.map((call) => call.invalidated_tokens)))],
  ["largest prompt", (run) => counted(Math.max(0, ...prompts(run)[0]))],
  ["over the window", (run) => counted(run.exceeded)],
  ["problems", (run) => counted(run.violations.length + run.unrestorable.length)],
];

/** The cheapest of each price is marked: which preset that is depends on what a cache read costs. */
function compare(runs, show) {
  const prices = Object.keys(runs[0].cost);
  const least = prices.map((price) => Math.min(...runs.filter(({ exceeded }) => !exceeded).map((run) => run.cost[price])));
  const cost = (price, at) => [`at ${price}`, (run) => counted(Math.round(run.cost[price] / 1000)), (run) => run.cost[price] === least[at]];
  const dollars = runs[0].money[0] ? [["input", ({ money }) => money[0]]] : [];
  const columns = [...COLUMNS, ...prices.map(cost), ...dollars];
  byId("presets").tHead.rows[0].replaceChildren(...columns.map(([name]) => element("th", { scope: "col" }, name)));
  const rows = runs.map((run, at) => {
    const [name, ...cells] = columns.map(([, text, isBest]) => [text(run), isBest?.(run)]);
    const button = element("button", { class: "link" }, name[0]);
    button.addEventListener("click", () => show(at));
    return element("tr", {}, element("th", { scope: "row" }, button), ...cells.map(([text, isBest]) => element("td", { "data-best": Boolean(isBest) }, text)));
  });
  byId("presets").tBodies[0].replaceChildren(...rows);
  byId("compared").hidden = false;
}

function bill(price, cost, without, texts = [cost, without].map((tokens) => counted(Math.round(tokens)))) {
  const saved = without ? `${Math.round(100 * (1 - cost / without))}%` : "–";
  const cells = [price, ...texts, saved];
  return element("tr", {}, ...cells.map((cell) => element("td", {}, cell)));
}

function happening({ call, kind, trigger: why, tier, tokens_before: before, tokens_after: after, invalidated_tokens: gone, message, money }, curve) {
  const cells = [counted(call), words(tier || kind), words(why), counted(before), counted(after), counted(gone)];
  const row = element("tr", { "data-call": call }, ...cells.map((cell) => element("td", {}, cell)), element("td", { class: "words" }, [message, money].filter(Boolean).join("; ")));
  row.addEventListener("mouseenter", () => curve.mark(call));
  return row;
}

try {
  const server = await openServer();
  const { task, runs } = await server.report();
  const curve = new Curve(byId("curve"));
  const choice = byId("run");
  write(byId("task"), task);
  byId("task").title = task;
  choice.replaceChildren(...runs.map(({ preset }, at) => element("option", { value: at }, preset)));
  choice.hidden = runs.length < 2;
  choice.addEventListener("change", () => showRun(runs[choice.value], curve));
  if (runs.length > 1) {
    compare(runs, (at) => {
      choice.value = at;
      showRun(runs[at], curve);
      byId("curve-title").scrollIntoView({ block: "start" });
    });
  }
  byId("finish").addEventListener("click", async () => {
    try {
      await server.finish();
      say("Finished: the command has ended, this tab can be closed.");
    } catch (error) {
      say(error.message, true);
    }
  });
  if (runs.length) showRun(runs[0], curve);
  document.body.classList.add("ready");
} catch (error) {
  say(error.message, true);
}
