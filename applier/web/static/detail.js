// One turn: what it leaves in the view, beside how it was. Clicking a line's number lets it stay, or go.

import { assign, byId, counted, element, write } from "./dom.js";
import { STRATEGIES } from "./turns.js";

const LINES_AT_ONCE = 500;
const PARTS = { user: "user", assistant: "agent", call: "call", result: "result" };
const LEAVES = {
  keep: "The turn stays whole, as it is beside.",
  drop: "Nothing. The turn is stored whole and can be restored.",
};

export class Detail {
  constructor(server, revision, list, fail) {
    this.server = server;
    this.revision = revision;
    this.list = list;
    this.fail = fail;
    this.read = new Map();
    this.lines = [];
    this.lineItems = [];
    this.panel = byId("detail");
    this.panel.addEventListener("click", (event) => this.clicked(event));
  }

  async show(turn) {
    this.turn = turn;
    this.lineItems = [];
    this.lines = [];
    this.build();
    this.update(this.revision.checked);
    this.revision.look(turn.id);
    try {
      if (!this.read.has(turn.id)) this.read.set(turn.id, await this.server.turn(turn.id));
    } catch (error) {
      this.fail(error);
      return;
    }
    if (this.turn !== turn) return;
    const { messages, lines } = this.read.get(turn.id);
    write(this.place, messages[0] === messages[1] ? `message ${messages[0]}` : `messages ${messages[0]}–${messages[1]}`);
    this.lines = lines;
    this.more();
    this.find();
  }

  holds(line) {
    return this.list.words !== "" && line.text.toLowerCase().includes(this.list.words);
  }

  /** Marks the lines that hold what is searched, and scrolls to the first. */
  find() {
    const first = this.lines.findIndex((line) => this.holds(line));
    while (first >= this.lineItems.length) this.more();
    this.lineItems.forEach(({ item }, at) => assign(item, "data-hit", String(this.holds(this.lines[at]))));
    this.lineItems[first]?.item.scrollIntoView({ block: "center" });
  }

  build() {
    const { turn } = this;
    this.place = element("span");
    this.sizes = element("span");
    this.why = element("p", { class: "why" });
    this.choices = STRATEGIES.map((strategy, at) =>
      element("button", { "data-strategy": strategy, "aria-pressed": "false", disabled: turn.live },
        element("kbd", { "aria-hidden": "true" }, String(at + 1)), strategy),
    );
    this.notes = element("ul", { class: "notes" });
    this.left = element("pre", { class: "left-text", tabindex: "0" });
    this.original = element("ol", { class: "lines" });
    this.next = element("button", { class: "quiet next", "data-next": true });
    this.rest = element("button", { class: "quiet", "data-more": true, hidden: true });
    const hint = turn.live ? "not answered yet: it stays as it is" : "a line’s number lets it stay or go";
    this.panel.replaceChildren(
      element("header", {},
        element("button", { class: "quiet back", "data-back": true }, "← Turns"),
        element("h2", {}, element("span", { class: "id" }, turn.id), " ", turn.what),
        element("p", { class: "note" }, `${turn.kind} · `, this.place, " · ", this.sizes, ` tokens · score ${turn.score.toFixed(2)}`),
        this.why,
        element("div", { class: "segments", role: "group", "aria-label": `Decision for ${turn.id}` }, ...this.choices),
        this.notes),
      element("div", { class: "sides" },
        element("section", {}, element("h3", {}, "What stays in the view"), this.left),
        element("section", {}, element("h3", {}, "Original ", element("small", {}, hint), this.next), this.original, this.rest)),
    );
    this.panel.scrollTop = 0;
  }

  more() {
    const from = this.lineItems.length;
    const chunk = this.lines.slice(from, from + LINES_AT_ONCE);
    for (const line of chunk) {
      const before = this.lines[line.number - 2];
      const label = before?.part === line.part ? null : element("li", { class: "part" }, PARTS[line.part] ?? line.part);
      const number = element("button", { "data-line": line.number, "aria-pressed": "false", tabindex: "-1",
        "aria-label": `Line ${line.number} stays`, disabled: this.turn.live }, String(line.number));
      const item = element("li", { "data-mark": line.mark || null, "data-hit": String(this.holds(line)), class: line.continues ? "continues" : null }, number,
        element("span", {}, line.text));
      this.lineItems.push({ item, number });
      this.original.append(...[label, item].filter(Boolean));
    }
    const left = this.lines.length - this.lineItems.length;
    this.rest.hidden = left <= 0;
    write(this.rest, `Show ${counted(Math.min(left, LINES_AT_ONCE))} of ${counted(left)} more lines`);
    this.mark();
  }

  clicked(event) {
    const { target } = event;
    if (target.closest("[data-back]")) document.body.classList.remove("detail-open");
    else if (target.closest("[data-more]")) this.more();
    else if (target.closest("[data-next]")) this.toNext();
    else if (target.closest("[data-line]")) this.toggle(Number(target.closest("[data-line]").dataset.line));
    else if (target.closest("[data-strategy]")) this.list.decide(target.closest("[data-strategy]").dataset.strategy, [this.list.current]);
  }

  /** Scrolls to the next run of lines that stay, or back to the first. */
  toNext() {
    const below = this.panel.getBoundingClientRect().top + this.panel.clientHeight / 2 + 1;
    const items = this.lineItems.map(({ item }) => item);
    const starts = items.filter((item, at) => item.dataset.stays === "true" && items[at - 1]?.dataset.stays !== "true");
    const next = starts.find((item) => item.getBoundingClientRect().top > below) ?? starts[0];
    next?.scrollIntoView({ block: "center" });
  }

  toggle(number) {
    const lines = this.keptLines();
    if (!lines.delete(number)) lines.add(number);
    const sorted = [...lines].sort((a, b) => a - b);
    this.revision.decide([this.turn.id], sorted.length ? "summarize" : "reference", sorted);
  }

  /** Numbers of the lines that stay, as the guards last said. */
  keptLines() {
    const open = this.revision.checked.open;
    const numbers = new Set();
    for (const [first, last] of open?.turn === this.turn.id ? open.kept : []) {
      for (let number = first; number <= last; number++) numbers.add(number);
    }
    return numbers;
  }

  mark() {
    const keptLines = this.keptLines();
    write(this.next, `${counted(keptLines.size)} of ${counted(this.turn.lines)} lines stay ↓`);
    this.next.disabled = !keptLines.size;
    this.lineItems.forEach(({ item, number }, at) => {
      assign(item, "data-stays", String(keptLines.has(at + 1)));
      assign(number, "aria-pressed", String(keptLines.has(at + 1)));
    });
  }

  update(checked) {
    if (!this.turn) return;
    const own = checked.turns[this.list.numbers.get(this.turn.id)];
    for (const button of this.choices) assign(button, "aria-pressed", String(button.dataset.strategy === own.strategy));
    write(this.sizes, `${counted(this.turn.before)} → ${counted(own.after)}`);
    write(this.why, own.failed ? `✗ ${["failed approach", own.why].filter((why, at) => !at || why !== "failed approach").join(" · ")}` : own.why);
    const findings = checked.findings.filter((finding) => finding.turn_id === this.turn.id);
    this.notes.replaceChildren(
      ...findings.map((finding) => element("li", {}, `${finding.problem}${finding.repair ? `: ${finding.repair}` : ""}`)),
    );
    if (checked.open?.turn !== this.turn.id) return;
    write(this.left, checked.open.left || LEAVES[own.strategy] || "Nothing.");
    assign(this.left, "data-empty", String(!checked.open.left));
    this.mark();
  }
}
