// The list of turns: a row each, its decision as four buttons. A thousand rows stay cheap because the browser lays out
// only those in sight (content-visibility), and after an answer only what differs is touched.

import { assign, byId, counted, element, write } from "./dom.js";

const TYPING_MS = 200;
export const STRATEGIES = ["keep", "summarize", "reference", "drop"];
const LETTERS = { keep: "K", summarize: "S", reference: "R", drop: "D" };
const FILTERS = {
  all: ["All turns", () => true],
  keep: ["Kept", (turn, own) => own.strategy === "keep"],
  summarize: ["Summarized", (turn, own) => own.strategy === "summarize"],
  reference: ["Referenced", (turn, own) => own.strategy === "reference"],
  drop: ["Dropped", (turn, own) => own.strategy === "drop"],
  failed: ["Failed approaches", (turn, own) => own.failed],
  user: ["The user’s", (turn) => turn.kind === "user"],
  changed: ["Changed by hand", (turn, own, revision) => turn.id in revision.turns],
};

export class TurnList {
  constructor(turns, revision, select, find) {
    this.turns = turns;
    this.revision = revision;
    this.select = select;
    this.find = find;
    this.searched = () => {};
    this.matches = new Set();
    this.current = -1;
    this.largest = Math.max(1, ...turns.map((turn) => turn.before));
    this.numbers = new Map(turns.map((turn, at) => [turn.id, at]));
    this.rows = turns.map((turn, at) => this.row(turn, at));
    this.list = byId("turn-list");
    this.list.replaceChildren(...this.rows.map((row) => row.item));
    this.list.addEventListener("click", (event) => this.clicked(event));
    byId("filter").replaceChildren(
      ...Object.entries(FILTERS).map(([name, [label]]) => element("option", { value: name }, label)),
    );
    byId("filter").addEventListener("change", () => this.filter());
    byId("search").addEventListener("input", () => this.search());
    byId("search").form.addEventListener("submit", (event) => event.preventDefault());
    this.picked = new Set();
    byId("pick-all").addEventListener("change", () => this.pickAll(byId("pick-all").checked));
    byId("picks").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button?.dataset.strategy) this.decide(button.dataset.strategy, [...this.picked]);
      else if (button) this.pickAll(false);
    });
  }

  row(turn, at) {
    const bar = element("span", { class: "bar", "aria-hidden": "true" });
    const [before, after] = [element("i", { class: "before" }), element("i", { class: "after" })];
    before.style.width = `${this.share(turn.before)}%`;
    bar.append(before, after);
    const tokens = element("span", { class: "tokens" });
    const what = element("span", { class: "what" }, turn.what);
    const main = element("button", { class: "main", tabindex: "-1" }, element("span", { class: "id" }, turn.id), bar, tokens, what);
    const choices = STRATEGIES.map((strategy) =>
      element(
        "button",
        { "data-strategy": strategy, tabindex: "-1", "aria-pressed": "false", title: strategy,
          "aria-label": `${strategy} ${turn.id}`, disabled: turn.live },
        LETTERS[strategy],
      ),
    );
    const group = element("span", { class: "choices", role: "group", "aria-label": `Decision for ${turn.id}` }, ...choices);
    const pick = element("input", { type: "checkbox", class: "pick", tabindex: "-1", title: "Select (x)", "aria-label": `Select ${turn.id}`, disabled: turn.live });
    const item = element("li", { "data-at": at }, pick, main, group);
    return { item, pick, main, tokens, after, choices };
  }

  /** Small turns stay visible beside large ones: the share grows with the square root. */
  share(tokens) {
    return Math.round(1000 * Math.sqrt(tokens / this.largest)) / 10;
  }

  clicked(event) {
    const item = event.target.closest("li");
    if (!item) return;
    const at = Number(item.dataset.at);
    if (event.shiftKey) return this.pickRange(this.anchor ?? this.current, at);
    if (event.target.matches(".pick") || event.ctrlKey || event.metaKey) return this.pick([at], !this.picked.has(at));
    const strategy = event.target.closest("button[data-strategy]")?.dataset.strategy;
    this.select(at, { isShown: !strategy });
    if (strategy) this.decide(strategy, [at]);
  }

  /** For the turns at these places: those that are selected, else the current one. */
  decide(strategy, places = this.picked.size ? [...this.picked] : [this.current]) {
    const own = places.filter((at) => this.turns[at] && !this.turns[at].live);
    if (!own.length) return;
    for (const at of own) this.press(this.rows[at], strategy);
    this.revision.decide(own.map((at) => this.turns[at].id), strategy);
  }

  /** Selects rows, or no longer; what is not shown or not to be decided never is. */
  pick(places, isPicked) {
    for (const at of places) {
      const { item, pick } = this.rows[at];
      const canBe = isPicked && !item.hidden && !this.turns[at].live;
      this.picked[canBe ? "add" : "delete"](at);
      pick.checked = canBe;
    }
    this.anchor = places.at(-1);
    this.showPicks();
  }

  pickRange(from, to) {
    const [first, last] = [Math.max(0, Math.min(from, to)), Math.max(from, to)];
    this.pick(Array.from({ length: last - first + 1 }, (_, step) => first + step), true);
    this.anchor = to;
  }

  pickAll(isPicked) {
    this.pick([...this.rows.keys()], isPicked);
    this.anchor = undefined;
  }

  showPicks() {
    const own = [...this.picked];
    const total = (sizes) => counted(sizes.reduce((sum, size) => sum + size, 0));
    const after = this.revision.checked.turns;
    byId("picks").hidden = !own.length;
    write(byId("picked"), `${counted(own.length)} selected · ${total(own.map((at) => this.turns[at].before))} → ${total(own.map((at) => after[at].after))} tokens`);
    const open = this.rows.filter((row, at) => !row.item.hidden && !this.turns[at].live).length;
    byId("pick-all").checked = own.length > 0 && own.length === open;
    byId("pick-all").indeterminate = own.length > 0 && own.length < open;
  }

  press(row, strategy) {
    for (const button of row.choices) assign(button, "aria-pressed", String(button.dataset.strategy === strategy));
    assign(row.item, "data-strategy", strategy);
  }

  update(checked) {
    checked.turns.forEach((own, at) => {
      const row = this.rows[at];
      const turn = this.turns[at];
      this.press(row, own.strategy);
      assign(row.item, "data-failed", String(own.failed));
      assign(row.item, "data-changed", String(turn.id in this.revision.turns));
      write(row.tokens, `${counted(turn.before)} → ${counted(own.after)}`);
      const width = `${this.share(own.after)}%`;
      if (row.after.style.width !== width) row.after.style.width = width;
      assign(row.main, "aria-label", `${turn.id}, ${own.strategy}${own.failed ? ", failed approach" : ""}: ${turn.what}`);
    });
    this.showPicks();
    for (const option of byId("filter").options) {
      const [label, test] = FILTERS[option.value];
      const count = this.turns.filter((turn, at) => test(turn, checked.turns[at], this.revision)).length;
      write(option, `${label} (${counted(count)})`);
    }
  }

  /** By ids and titles at once, and by what stands in the originals as soon as the command has answered. */
  search() {
    const words = byId("search").value.trim();
    this.matches = new Set();
    this.filter();
    this.searched();
    clearTimeout(this.typing);
    if (words) this.typing = setTimeout(() => this.searchOriginals(words), TYPING_MS);
  }

  async searchOriginals(words) {
    document.body.setAttribute("aria-busy", "true");
    const matches = await this.find(words);
    document.body.removeAttribute("aria-busy");
    if (byId("search").value.trim() !== words) return;
    this.matches = new Set(matches);
    this.filter();
  }

  get words() {
    return byId("search").value.toLowerCase().trim();
  }

  clear() {
    byId("search").value = "";
    this.search();
  }

  filter() {
    const [, test] = FILTERS[byId("filter").value];
    const { words } = this;
    this.turns.forEach((turn, at) => {
      const isMatch = !words || turn.id === words || turn.what.toLowerCase().includes(words) || this.matches.has(turn.id);
      this.rows[at].item.hidden = !(isMatch && test(turn, this.revision.checked.turns[at], this.revision));
    });
    this.pick([...this.picked], true);
  }

  show(at) {
    const last = this.rows[this.current];
    if (last) {
      last.main.removeAttribute("aria-current");
      for (const button of [last.main, ...last.choices]) button.tabIndex = -1;
    }
    this.current = at;
    const row = this.rows[at];
    row.main.setAttribute("aria-current", "true");
    for (const button of [row.main, ...row.choices]) button.tabIndex = 0;
    row.item.scrollIntoView({ block: "nearest" });
  }

  /** The next turn in this direction that the filter shows. */
  next(step) {
    for (let at = this.current + step; at >= 0 && at < this.rows.length; at += step) {
      if (!this.rows[at].item.hidden) return at;
    }
    return this.current;
  }
}
