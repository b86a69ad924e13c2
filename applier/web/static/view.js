// The whole view, as the model gets it: every message with all its blocks, and which of them are as they were.

import { byId, counted, element } from "./dom.js";

/** A block as text; what is no text as its JSON, of an image only how large it is. */
function blockText(block) {
  if (typeof block === "string") return block;
  if (block.type === "text") return block.text;
  if (block.type === "thinking") return block.thinking;
  if (block.type === "tool_use") return JSON.stringify(block.input, null, 2);
  if (block.type === "tool_result") return [block.content ?? []].flat().map(blockText).join("\n");
  return JSON.stringify(block, (name, value) => (name === "data" && value.length ? `${counted(value.length)} characters` : value), 2);
}

function blockName({ type, name, is_error: isError }) {
  return [type.replaceAll("_", " "), name, isError && "error"].filter(Boolean).join(" · ");
}

function block(block) {
  const name = typeof block === "string" || block.type === "text" ? null : element("p", { class: "part" }, blockName(block));
  return element("div", {}, name, element("pre", { class: "left-text" }, blockText(block)));
}

function article({ index, tokens, message }, at) {
  const place = index === null ? "written by the plan" : `as it was, message ${counted(index)} of the transcript`;
  return element("article", { "data-own": index === null },
    element("h3", {}, `${counted(at)} ${message.role}`, element("small", {}, `${counted(tokens)} tokens · ${place}`)),
    ...[message.content].flat().map(block));
}

/** Asks for the view when it is looked at, and again only after a change. */
export class View {
  constructor(server, revision, fail) {
    this.server = server;
    this.revision = revision;
    this.fail = fail;
  }

  async show() {
    const wanted = this.revision.asText();
    if (this.shown === wanted) return;
    this.shown = wanted;
    document.body.setAttribute("aria-busy", "true");
    try {
      const { messages } = await this.server.view(this.revision.asJson());
      if (this.shown === wanted) byId("panel-view").replaceChildren(...messages.map(article));
    } catch (error) {
      this.shown = undefined;
      this.fail(error);
    } finally {
      document.body.removeAttribute("aria-busy");
    }
  }
}
