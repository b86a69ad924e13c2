// All turns as bars: how many tokens each had, and how many of them stay. Clicking one leads to it.

import { counted, keepDrawn, penFor } from "./dom.js";

const SHOWN_SHARE = 0.97; // bars higher than those of this share of the turns are cut off: one dump would hide the rest

export class Strip {
  constructor(canvas, scale, turns, select) {
    this.canvas = canvas;
    this.turns = turns;
    this.after = turns.map((turn) => turn.before);
    this.current = 0;
    const sizes = turns.map((turn) => turn.before).sort((a, b) => a - b);
    this.top = Math.max(1, sizes[Math.min(sizes.length - 1, Math.floor(sizes.length * SHOWN_SHARE))] ?? 1);
    const cut = sizes.filter((size) => size > this.top).length;
    scale.textContent = `full height ${counted(this.top)}${cut ? `, ${cut} larger ones cut off` : ""}`;
    canvas.addEventListener("click", (event) => select(this.turnAt(event.offsetX)));
    canvas.addEventListener("mousemove", (event) => this.name(event.offsetX));
    keepDrawn(canvas, () => this.draw());
  }

  turnAt(x) {
    const at = Math.floor((x / this.canvas.clientWidth) * this.turns.length);
    return Math.max(0, Math.min(this.turns.length - 1, at));
  }

  name(x) {
    const at = this.turnAt(x);
    const turn = this.turns[at];
    this.canvas.title = `${turn.id}: ${counted(turn.before)} → ${counted(this.after[at])} tokens`;
  }

  show(after, current) {
    this.after = after;
    this.current = current;
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.draw());
  }

  draw() {
    const { canvas, turns } = this;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!width || !turns.length) return;
    const [pen, color] = penFor(canvas);
    const step = width / turns.length;
    const gap = step > 3 ? 1 : 0;
    const bar = (at, tokens, fill) => {
      const size = tokens ? Math.max(1, Math.min(1, tokens / this.top) * (height - 6)) : 0;
      pen.fillStyle = fill;
      pen.fillRect(at * step, height - size, Math.max(0.5, step - gap), size);
    };
    const [before, after] = [color("bar-before"), color("accent")];
    turns.forEach((turn, at) => bar(at, turn.before, before));
    turns.forEach((turn, at) => bar(at, this.after[at], after));
    pen.fillStyle = color("text");
    pen.fillRect(this.current * step, 0, Math.max(2, step - gap), 3);
  }
}
