// Talks to the command that serves this page. The token of the link is exchanged for a key, once; the key stays in
// this tab.

const STORED_KEY = "compactor-key";

async function request(path, body, key) {
  const headers = { "x-compactor-key": key };
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method: body === undefined ? "GET" : "POST",
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "omit",
    });
  } catch {
    throw new Error("The command does not answer; it may have ended. Run it again; saved changes are in the plan.");
  }
  const data = await response.json();
  if (!response.ok) throw new Error(data.problem ?? `status ${response.status}`);
  return data;
}

export async function openServer() {
  const token = location.hash.slice(1);
  history.replaceState(null, "", "/");
  let key = sessionStorage.getItem(STORED_KEY) ?? "";
  if (token) {
    key = (await request("/api/open", { token }, "")).key;
    sessionStorage.clear();
    sessionStorage.setItem(STORED_KEY, key);
  }
  return {
    review: () => request("/api/review", undefined, key),
    report: () => request("/api/report", undefined, key),
    turn: (turnId) => request(`/api/turns/${encodeURIComponent(turnId)}`, undefined, key),
    search: (text) => request("/api/search", { text: text.slice(0, 1000) }, key),
    view: (revision) => request("/api/view", revision, key),
    replan: (wanted) => request("/api/replan", wanted, key),
    check: (revision) => request("/api/check", revision, key),
    save: (revision) => request("/api/save", revision, key),
    apply: (revision) => request("/api/apply", revision, key),
    finish: () => request("/api/finish", {}, key),
  };
}
