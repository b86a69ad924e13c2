// What the person changed, how to take it back, and the guards' answer to it.
//
// One question is under way at a time; what was changed meanwhile is asked next, and only the newest of it.

const STORED = "compactor-revision";
const TYPING_MS = 200;

export class Revision {
  constructor(server, checked, isSaved) {
    this.server = server;
    this.checked = checked;
    this.turns = {};
    this.brief = null;
    this.open = "";
    this.past = [];
    this.answered = () => {};
    this.failed = () => {};
    this.isAsking = false;
    this.isStale = false;
    this.opened = this.asText();
    this.saved = isSaved ? this.opened : "";
    this.restore();
  }

  get isDirty() {
    return this.asText() !== this.saved;
  }

  get canUndo() {
    return this.past.length > 0;
  }

  asJson() {
    return { turns: this.turns, brief: this.brief, open: this.open };
  }

  asText() {
    return JSON.stringify([this.turns, this.brief]);
  }

  /** One change, of however many turns. */
  decide(turnIds, strategy, lines = null) {
    this.remember("decision");
    const own = lines === null ? { strategy } : { strategy, lines };
    this.turns = { ...this.turns, ...Object.fromEntries(turnIds.map((turnId) => [turnId, own])) };
    return this.ask();
  }

  write(brief) {
    this.remember("brief");
    this.brief = brief;
    this.store();
    document.body.setAttribute("aria-busy", "true");
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.ask(), TYPING_MS);
  }

  look(turnId) {
    this.open = turnId;
    return this.ask();
  }

  undo() {
    const before = this.past.pop();
    if (before === undefined) return;
    this.last = "";
    [this.turns, this.brief] = JSON.parse(before);
    this.ask();
  }

  /** Keystrokes in the brief that follow each other are one change. */
  remember(kind) {
    if (kind === "brief" && this.last === "brief") return;
    this.last = kind;
    this.past.push(this.asText());
  }

  store() {
    try {
      sessionStorage.setItem(STORED, this.asText());
    } catch {
      // full: a reload starts from the plan again
    }
  }

  restore() {
    const stored = sessionStorage.getItem(STORED);
    if (stored && stored !== this.opened) {
      this.past.push(this.opened);
      [this.turns, this.brief] = JSON.parse(stored);
      this.isStale = true;
    }
  }

  async ask() {
    this.store();
    this.isStale = true;
    if (this.isAsking) return;
    this.isAsking = true;
    document.body.setAttribute("aria-busy", "true");
    try {
      while (this.isStale) {
        this.isStale = false;
        this.checked = await this.server.check(this.asJson());
      }
      this.answered(this.checked);
    } catch (error) {
      this.failed(error);
    } finally {
      this.isAsking = false;
      document.body.removeAttribute("aria-busy");
    }
  }
}
