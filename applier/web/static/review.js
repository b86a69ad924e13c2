// The page: opens the review, wires its parts, keys and actions.

import { Detail } from "./detail.js";
import { byId, counted, element, write } from "./dom.js";
import { Brief, showFacts, showFailures, showFindings, showWords } from "./panels.js";
import { Revision } from "./revision.js";
import { openServer } from "./server.js";
import { Strip } from "./strip.js";
import { STRATEGIES, TurnList } from "./turns.js";
import { View } from "./view.js";

const STATUS_MS = 8000;
const TABS = ["turns", "brief", "view", "failed", "words", "facts", "findings"];

function say(text, { isProblem = false, stays = false } = {}) {
  const status = byId("status");
  status.textContent = text;
  status.className = `status shown${isProblem ? " problem" : ""}`;
  clearTimeout(say.timer);
  if (!stays) say.timer = setTimeout(() => status.classList.remove("shown"), STATUS_MS);
}

const fail = (error) => say(error.message, { isProblem: true });

class Page {
  constructor(server, page) {
    this.server = server;
    this.page = page;
    this.revision = new Revision(server, page.checked, page.saved);
    this.list = new TurnList(page.turns, this.revision, (at, how) => this.select(at, how), (words) => this.find(words));
    this.detail = new Detail(server, this.revision, this.list, fail);
    this.strip = new Strip(byId("strip"), byId("scale"), page.turns, (at) => this.goTo(page.turns[at].id));
    this.brief = new Brief(page, this.revision);
    this.view = new View(server, this.revision, fail);
    write(byId("task"), page.task);
    byId("task").title = page.task;
    write(byId("planner"), page.planner);
    byId("planner").title = page.notes.join(" · ");
    const names = { model: page.planner, rules: "rules" };
    byId("replan-planner").replaceChildren(...page.planners.map((name) => element("option", { value: name }, names[name])));
    byId("save").title = `Write ${page.files.plan} (s)`;
    this.count("turns", page.turns.length);
    this.count("words", showWords(page.words));
    this.count("facts", showFacts(page.facts));
    this.update(page.checked);
    this.revision.answered = (checked) => this.answered(checked);
    this.revision.failed = fail;
    this.list.searched = () => this.detail.find();
    this.listen();
    if (this.revision.isStale) this.revision.ask();
    if (page.turns.length) this.select(0, { isShown: false });
    if (!page.saved) say("This is a new plan; it is not saved yet.");
  }

  listen() {
    for (const name of TABS) byId(`tab-${name}`).addEventListener("click", () => this.tab(name));
    document.querySelector("[role=tablist]").addEventListener("keydown", (event) => this.tabKey(event));
    document.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("click", (event) => {
      const link = event.target.closest("[data-turn]");
      if (link) this.goTo(link.dataset.turn);
    });
    byId("undo").addEventListener("click", () => this.revision.undo());
    byId("save").addEventListener("click", () => this.save());
    byId("apply").addEventListener("click", () => this.askToApply());
    byId("replan").addEventListener("click", () => this.askToReplan());
    byId("replan-target").addEventListener("input", () => this.shareOfTarget());
    byId("replan-dialog").addEventListener("close", (event) => {
      if (event.target.returnValue === "plan") this.replan();
    });
    byId("help").addEventListener("click", () => byId("help-dialog").showModal());
    byId("finish").addEventListener("click", () => this.finish());
    byId("apply-dialog").addEventListener("close", (event) => {
      if (event.target.returnValue === "apply") this.apply();
    });
    addEventListener("beforeunload", (event) => {
      if (this.revision.isDirty && !this.isFinished) event.preventDefault();
    });
  }

  select(at, { isShown = true } = {}) {
    const isAnother = this.list.current !== at;
    this.list.show(at);
    if (isAnother) this.detail.show(this.page.turns[at]);
    if (isShown) document.body.classList.add("detail-open");
    this.strip.show(this.revision.checked.turns.map((own) => own.after), at);
  }

  goTo(turnId) {
    this.tab("turns");
    const at = this.list.numbers.get(turnId);
    if (at === undefined) return;
    if (this.list.rows[at].item.hidden) {
      byId("filter").value = "all";
      this.list.clear();
    }
    this.select(at);
    this.list.rows[at].main.focus({ preventScroll: true });
  }

  answered(checked) {
    const known = new Set(this.known);
    this.update(checked);
    const news = checked.findings.filter((finding) => finding.new && !finding.code.includes("brief") && !known.has(JSON.stringify(finding)));
    if (news.length) {
      const [{ turn_id, problem, repair }] = news;
      const more = news.length > 1 ? ` (and ${news.length - 1} more findings)` : "";
      say(`${turn_id ? `${turn_id}: ` : ""}${problem}${repair ? `; ${repair}` : ""}${more}`);
    }
  }

  update(checked) {
    this.known = checked.findings.map((finding) => JSON.stringify(finding));
    this.list.update(checked);
    this.detail.update(checked);
    this.strip.show(checked.turns.map((own) => own.after), this.list.current);
    this.count("brief", this.brief.update(checked));
    this.count("failed", showFailures(checked));
    this.count("findings", showFindings(checked));
    this.totals(checked.totals);
    if (this.open === "view") this.view.show();
    byId("undo").disabled = !this.revision.canUndo;
    document.title = `${this.revision.isDirty ? "• " : ""}Review · compactor`;
  }

  totals({ tokens_before: before, tokens_after: after, target, first_changed_message: first, ...cost }) {
    const { invalidated_tokens: gone, payback_calls: calls, messages, money } = cost;
    this.count("view", messages);
    write(byId("after"), counted(after));
    write(byId("of-before"), `of ${counted(before)} tokens stay · ${before ? Math.round((100 * after) / before) : 0}%`);
    byId("gauge-after").style.width = `${Math.min(100, (100 * after) / Math.max(1, before))}%`;
    byId("gauge-target").style.left = `${Math.min(100, (100 * target) / Math.max(1, before))}%`;
    const off = after - target;
    write(byId("target"), off > 0 ? `${counted(off)} over the target of ${counted(target)}` : `Within the target of ${counted(target)}`);
    byId("target").classList.toggle("over", off > 0);
    const paid = first === null ? "nothing changes" : calls === null ? "never, in cache terms" : `after ${calls.toFixed(1)} calls`;
    write(byId("first-changed"), first === null ? "none" : `message ${counted(first)}`);
    const saved = money.saved ? `${paid}, ${money.saved} less a call` : paid;
    write(byId("payback"), saved);
    write(byId("invalidated"), `${counted(Math.max(0, after - before + gone))} tokens ${money.rebilled ?? ""}`.trim());
    byId("invalidated").title = `in place of ${counted(gone)} cached ones`;
    write(byId("planner"), [this.page.planner, money.planning].filter(Boolean).join(" "));
  }

  count(name, count) {
    write(byId(`tab-${name}`).querySelector("b"), counted(count));
  }

  tab(name) {
    for (const other of TABS) {
      const isOpen = other === name;
      byId(`tab-${other}`).setAttribute("aria-selected", String(isOpen));
      byId(`tab-${other}`).tabIndex = isOpen ? 0 : -1;
      byId(`panel-${other}`).hidden = !isOpen;
    }
    this.open = name;
    if (name === "view") this.view.show();
    document.body.classList.remove("detail-open");
  }

  tabKey(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = (TABS.indexOf(this.open ?? "turns") + step + TABS.length) % TABS.length;
    this.tab(TABS[at]);
    byId(`tab-${TABS[at]}`).focus();
  }

  key(event) {
    if (document.querySelector("dialog[open]") || event.ctrlKey || event.metaKey || event.altKey) return;
    const isTyping = event.target.matches("textarea, select, input:not([type=checkbox])");
    if (event.key === "Escape") {
      event.preventDefault();
      if (isTyping) event.target.blur();
      if (event.target === byId("search")) this.list.clear();
      else this.list.pickAll(false);
      this.tab("turns");
      return;
    }
    const act = isTyping ? undefined : this.action(event.key);
    if (act) {
      event.preventDefault();
      act();
    }
  }

  action(key) {
    if ("1234".includes(key)) return () => this.list.decide(STRATEGIES[Number(key) - 1]);
    return {
      j: () => this.step(1),
      k: () => this.step(-1),
      x: () => this.list.pick([this.list.current], !this.list.picked.has(this.list.current)),
      J: () => this.stepPicking(1),
      K: () => this.stepPicking(-1),
      ArrowDown: this.open === "turns" || !this.open ? () => this.step(1) : undefined,
      ArrowUp: this.open === "turns" || !this.open ? () => this.step(-1) : undefined,
      u: () => this.revision.undo(),
      s: () => this.save(),
      a: () => this.askToApply(),
      e: () => {
        this.tab("brief");
        byId("brief-text").focus();
      },
      "/": () => {
        this.tab("turns");
        byId("search").focus();
      },
      "?": () => byId("help-dialog").showModal(),
    }[key];
  }

  step(step) {
    if (this.open && this.open !== "turns") this.tab("turns");
    const at = this.list.next(step);
    if (at >= 0) {
      this.select(at, { isShown: false });
      this.list.rows[at].main.focus({ preventScroll: true });
    }
  }

  stepPicking(step) {
    const from = this.list.current;
    this.step(step);
    this.list.pick([from, this.list.current], true);
  }

  async find(text) {
    try {
      return (await this.server.search(text)).turns;
    } catch (error) {
      fail(error);
      return [];
    }
  }

  async save() {
    const text = this.revision.asText();
    try {
      const { message } = await this.server.save(this.revision.asJson());
      this.revision.saved = text;
      document.title = "Review · compactor";
      say(message);
    } catch (error) {
      fail(error);
    }
  }

  askToReplan() {
    const { target } = this.revision.checked.totals;
    byId("replan-target").value = target;
    byId("replan-kept").hidden = !this.revision.canUndo;
    this.shareOfTarget();
    byId("replan-dialog").returnValue = "";
    byId("replan-dialog").showModal();
  }

  shareOfTarget() {
    const { tokens_before: before } = this.revision.checked.totals;
    write(byId("replan-share"), `${Math.round((100 * byId("replan-target").value) / Math.max(1, before))}% of ${counted(before)} tokens`);
  }

  /** The page is loaded again over the new plan; what was changed by hand stands in the tab and goes on over it. */
  async replan() {
    say("Planning again…", { stays: true });
    document.body.setAttribute("aria-busy", "true");
    try {
      await this.server.replan({ target_tokens: Number(byId("replan-target").value), planner: byId("replan-planner").value });
      this.isFinished = true;
      location.reload();
    } catch (error) {
      document.body.removeAttribute("aria-busy");
      fail(error);
    }
  }

  askToApply() {
    const { tokens_before: before, tokens_after: after } = this.revision.checked.totals;
    const { view } = this.page.files;
    write(byId("apply-text"), `${counted(before)} tokens become ${counted(after)}. The originals are stored first; the compacted transcript is written to ${view}, and the transcript itself stays as it is.`);
    byId("apply-dialog").returnValue = "";
    byId("apply-dialog").showModal();
  }

  async apply() {
    try {
      const { message, detail } = await this.server.apply(this.revision.asJson());
      say(detail ? `${message}. ${detail}` : message, { stays: true });
    } catch (error) {
      fail(error);
    }
  }

  async finish() {
    byId("help-dialog").close();
    if (this.revision.isDirty && !confirm("Your changes are not saved. Finish anyway?")) return;
    try {
      await this.server.finish();
      this.isFinished = true;
      say("Finished: the command has ended, this tab can be closed.", { stays: true });
    } catch (error) {
      fail(error);
    }
  }
}

try {
  const server = await openServer();
  new Page(server, await server.review());
  document.body.classList.add("ready");
} catch (error) {
  say(error.message, { isProblem: true, stays: true });
}
