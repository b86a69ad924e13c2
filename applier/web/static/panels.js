// What the plan holds besides its turns: brief, failures, the user's words, facts, findings.

import { byId, counted, element, turnLink, write } from "./dom.js";

const STATES = { holds: "✓", mended: "~", struck: "✗" };
const FACTS = {
  constraint: "Constraints", decision: "Decisions", error: "Errors", file_state: "Files", dependency: "Dependencies",
};
const FACTS_AT_ONCE = 200;

const empty = (text) => element("p", { class: "empty" }, text);

export class Brief {
  constructor(page, revision) {
    this.page = page;
    this.revision = revision;
    this.text = byId("brief-text");
    this.text.value = revision.brief ?? page.brief;
    this.text.addEventListener("input", () => revision.write(this.text.value));
  }

  /** `text` is not touched while it is typed in: only undoing changes it from outside. */
  update({ statements }) {
    const own = this.revision.brief ?? this.page.brief;
    if (document.activeElement !== this.text && this.text.value !== own) this.text.value = own;
    const items = [];
    let heading = "";
    for (const statement of statements) {
      if (statement.heading !== heading) items.push(element("li", { class: "heading" }, statement.heading));
      heading = statement.heading;
      items.push(
        element("li", { "data-state": statement.state },
          element("span", { class: "state", "aria-label": statement.state }, STATES[statement.state]),
          element("div", {},
            element("p", {}, statement.text, " ", ...statement.turns.map(turnLink)),
            ...statement.problems.map((problem) => element("p", { class: "problem" }, problem)))),
      );
    }
    byId("statements").replaceChildren(...items);
    if (document.activeElement === this.text) {
      byId("statements").querySelector("[data-state=struck], [data-state=mended]")?.scrollIntoView({ block: "nearest" });
    }
    const count = (state) => statements.filter((statement) => statement.state === state).length;
    const parts = [`${count("holds")} hold`, count("mended") && `${count("mended")} corrected`, count("struck") && `${count("struck")} removed`];
    write(byId("brief-verdict"), statements.length ? parts.filter(Boolean).join(", ") : "The brief is empty.");
    return statements.length;
  }
}

export function showFailures({ failed }) {
  byId("panel-failed").replaceChildren(
    ...(failed.length ? [] : [empty("Nothing failed.")]),
    ...failed.map(({ turn, what, how }) =>
      element("article", { "data-mark": "failure" }, element("h3", {}, turnLink(turn), " ", what), element("p", { class: "code" }, how)),
    ),
  );
  return failed.length;
}

export function showWords(words) {
  byId("panel-words").replaceChildren(
    ...(words.length ? [] : [empty("No words of the user.")]),
    ...words.map(({ turn, lines, more }) =>
      element("article", {},
        element("h3", {}, turnLink(turn)),
        ...lines.map(({ text, binding }) => element("p", { "data-binding": binding }, text)),
        more > 0 ? element("p", { class: "note" }, `and ${counted(more)} more lines in the turn`) : null),
    ),
  );
  return words.filter(({ lines }) => lines.some(({ binding }) => binding)).length;
}

export function showFacts(facts) {
  const panel = byId("panel-facts");
  panel.replaceChildren(...(facts.length ? [] : [empty("No facts were recorded.")]));
  for (const [type, title] of Object.entries(FACTS)) {
    const own = facts.filter((fact) => fact.type === type);
    if (!own.length) continue;
    const list = element("ul", { class: "facts" });
    const button = element("button", { class: "quiet" });
    const more = () => {
      const shown = list.childElementCount;
      list.append(...own.slice(shown, shown + FACTS_AT_ONCE).map(fact));
      button.hidden = list.childElementCount >= own.length;
      write(button, `${counted(own.length - list.childElementCount)} more`);
    };
    button.addEventListener("click", more);
    more();
    panel.append(element("article", {}, element("h3", {}, `${title} `, element("small", {}, counted(own.length))), list, button));
  }
  return facts.length;
}

const fact = ({ content, quote, source }) =>
  element("li", {}, turnLink(source), element("span", {}, content, quote && quote !== content ? element("q", {}, quote) : null));

export function showFindings({ findings }) {
  byId("panel-findings").replaceChildren(
    ...(findings.length ? [] : [empty("No findings.")]),
    ...findings.map(({ code, turn_id, problem, repair, new: isNew }) =>
      element("article", { "data-new": isNew },
        element("h3", {}, turn_id ? turnLink(turn_id) : null, " ", code.replaceAll("_", " "),
          isNew ? element("small", {}, "from your changes") : null),
        element("p", {}, problem),
        repair ? element("p", { class: "note" }, `→ ${repair}`) : null),
    ),
  );
  return findings.length;
}
