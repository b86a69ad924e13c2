// The page of a session: the curve of its prompts, what happened in it, and what it cost beside doing nothing.

import { byId, counted, element, write } from "./dom.js";
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
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
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
    canvas.width = width * devicePixelRatio;
    canvas.height = height * devicePixelRatio;
    const pen = canvas.getContext("2d");
    pen.scale(devicePixelRatio, devicePixelRatio);
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(`--${name}`);
    const count = sent.length;
    const top = 1.05 * Math.max(1, run.limit_tokens, ...history);
    const x = (at) => LEFT + (count > 1 ? (at / (count - 1)) * (width - LEFT - 2) : 0);
    const y = (tokens) => TOP + (1 - tokens / top) * (height - TOP - BOTTOM);
    pen.font = `11px ${style.getPropertyValue("--sans")}`;
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
  const total = (values) => values.reduce((sum, value) => sum + value, 0);
  const [prompt, history] = prompts(run);
  const [sent, without] = [total(prompt), total(history)];
  const recalled = run.happenings.filter(({ kind }) => kind === "recalled");
  write(byId("saved"), without ? `${Math.round(100 * (1 - sent / without))}%` : "–");
  write(byId("saved-of"), "fewer prompt tokens");
  write(byId("summary"), `${counted(sent)} sent in ${counted(prompt.length)} calls, ${counted(without)} without`);
  write(byId("compactions"), counted(run.happenings.length - recalled.length));
  write(byId("recalled"), counted(recalled.length));
  write(byId("peak"), counted(Math.max(0, ...prompt)));
  write(byId("limit"), counted(run.limit_tokens));
  byId("bill").tBodies[0].replaceChildren(...Object.keys(run.cost).map((price) => bill(price, run.cost[price], run.cost_without[price])));
  byId("happenings").tBodies[0].replaceChildren(...run.happenings.map((own) => happening(own, curve)));
  const problems = [...run.violations, ...run.unrestorable];
  byId("problems").hidden = !problems.length;
  byId("problems").querySelector("ul").replaceChildren(...problems.map((text) => element("li", {}, text)));
  curve.show(run);
}

function bill(price, tokens, without) {
  const saved = without ? `${Math.round(100 * (1 - tokens / without))}%` : "–";
  const cells = [price, counted(Math.round(tokens)), counted(Math.round(without)), saved];
  return element("tr", {}, ...cells.map((cell) => element("td", {}, cell)));
}

function happening({ call, kind, trigger: why, tier, tokens_before: before, tokens_after: after, invalidated_tokens: anew, message }, curve) {
  const cells = [counted(call), words(tier || kind), words(why), counted(before), counted(after), counted(anew)];
  const row = element("tr", { "data-call": call }, ...cells.map((cell) => element("td", {}, cell)), element("td", { class: "words" }, message));
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
