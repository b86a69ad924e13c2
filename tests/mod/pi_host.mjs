// Loads the extension as Pi does, compacts once, and prints what became of it. Argument: the extension's folder.
const handlers = {}, notes = []
const host = {
  on: (event, handler) => (handlers[event] = handler),
  registerCommand: (_, { handler }) => (handlers.command = handler),
  registerTool: () => {},
}
const ctx = {
  hasUI: true,
  ui: { notify: (text) => notes.push(text) },
  model: { id: 'a-model', provider: 'loop', contextWindow: 100000 },
  modelRegistry: JSON.parse(process.argv[3]).complete ? { complete: async () => ({}) } : {},
  sessionManager: { getSessionId: () => 'a-session', getBranch: () => [] },
}
const stale = () => {
  throw new Error('This extension ctx is stale')
}
const ended = Object.defineProperties({}, Object.fromEntries(Object.keys(ctx).map((name) => [name, { get: stale }])))
const { default: extension } = await import(`${process.argv[2]}/index.js`)
extension(host)
await handlers.session_start({}, ctx)
const event = { preparation: { tokensBefore: 1 }, branchEntries: [], signal: new AbortController().signal }
const result = await handlers.session_before_compact(event, ctx)
await handlers.command('preview', ctx)
await handlers.session_before_compact(event, ended) // Pi 0.74 compacts when its session has ended
console.log(JSON.stringify({ result: result ?? null, notes }))
