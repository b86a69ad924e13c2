// Run by `claude plugin test` on a copy of the plugin, where the client is.
import { test, expect } from 'claude-code/testing'

const row = (role, text, handle) => ({ role, text, toolUses: [], handle })
const OWN = { messages: [row('user', 'the summary of the client')] }

// What lies beneath the mod: its program's answers in order, a model, and a client that compacts.
const beneath = (on, replies, context = {}) => {
  const seen = { asked: [], said: [], runs: [], own: 0 }
  on('fs.read', () => ({ value: JSON.stringify({ argv: ['program'] }) }))
  on('process.run', (_, e) => {
    seen.runs.push(e)
    return { value: { exitCode: 0, stdout: JSON.stringify(replies[seen.runs.length - 1]), stderr: '' } }
  })
  on('model.fork', (_, e) => {
    seen.asked.push(e)
    return { value: { isAnswered: true, text: 'yes', usage: {} } }
  })
  on('session.id', () => ({ value: 'a-session' }))
  on('session.model', () => ({ value: 'a-model' }))
  on('session.surface', () => ({ value: null }))
  on('session.usage', () => ({ value: { context, rateLimits: [], startedAt: 0 } }))
  on('session.messages', () => ({ value: [] }))
  on('ui.log', (_, e) => {
    seen.said.push(e.text)
    return { value: undefined }
  })
  on('session.compact', () => {
    seen.own += 1
    return OWN
  })
  return seen
}

test('questions are asked and their answers go back', async ($, on) => {
  const view = { messages: [row('user', 'view'), { handle: 'h1' }], receipt: 'done\nand more' }
  const seen = beneath(on, [{ ask: [{ id: 'q', via: 'fork', prompt: 'what matters?' }] }, view])
  const done = await $.session.compact({ trigger: 'manual', messages: [row('user', 'words', 'h1')] })
  expect(done.messages.map(m => m.text)).toEqual(['view', 'words'])
  expect(seen.said).toEqual(['done', 'and more'])
  expect(seen.own).toBe(0)
  expect(seen.asked.map(e => e.prompt)).toEqual(['what matters?'])
  const answered = JSON.parse(seen.runs[1].init?.stdin ?? seen.runs[1].stdin).answers
  expect(answered.q.text).toBe('yes')
})

test('near the limit a plan is made beforehand, once, and nobody waits for it', async ($, on) => {
  const described = { tools: [], shorten_over_characters: 0, plans_ahead: true }
  const near = { tokens: 60_000, window: 100_000, breakdown: { autoCompactThreshold: 67_000 } }
  const seen = beneath(on, [described, { ask: [{ id: 'q', via: 'complete', prompt: 'what matters?' }] }, { is_ready: true }], near)
  on('session.start', (_, e) => ({ cwd: e.cwd }))
  on('session.append', (_, e, next) => next(e))
  on('command.register', () => ({ value: undefined }))
  on('model.complete', () => ({ value: { isAnswered: true, text: 'yes', usage: {} } }))
  await $.session.start({ cwd: '/', surface: null, isInteractive: false })
  const result = { type: 'tool_result', tool_use_id: 'c1', content: 'well' }
  const append = () => $.session.append({ door: 'tool-result', message: { type: 'user', role: 'user', content: [result] }, uuid: 'u1', origin: { kind: 'tool', tool: 'Bash' } })
  await append()
  await append()
  for (let wait = 0; wait < 50 && seen.runs.length < 3; wait += 1) await append()
  expect(seen.runs.map(({ argv }) => argv.at(-1))).toEqual(['describe', 'ahead', 'ahead'])
  expect(seen.said).toEqual([])
})

test('a view is drawn as its receipt, and whole where all is shown', async ($, on) => {
  const opening = '<compacted history="h1a2b3c4d" turns="t1-t9">'
  const drawn = async (text, isExpanded = false) => {
    const origin = { kind: 'human' }
    const props = { text, isExpanded, origin }
    const ui = await $.ui.mount({ plugin: 'compactor', surface: 'terminal', component: 'UserMessage', requestId: 'r', props })
    const lines = (await ui.findAll({ type: 'Text' })).map(line => line.text)
    await ui.unmount()
    return lines
  }
  beneath(on, [{ messages: [row('user', 'the task'), row('user', `${opening} all of it`)], receipt: 'what went\nand more' }])
  expect((await drawn(`${opening} all of it`))[0]).toContain('ctrl+o')
  await $.session.compact({ trigger: 'precompute', messages: [row('user', 'words', 'h1')] })
  expect(await drawn(`${opening} all of it`)).toEqual(['what went', 'and more'])
  expect(await drawn(`${opening} all of it`, true)).toEqual([])
  expect(await drawn(`I ask of ${opening}`)).toEqual([])
})

test('what the program passes the client does', async ($, on) => {
  const seen = beneath(on, [{ pass: 'too small' }, { receipt: 'what went' }])
  const done = await $.session.compact({ trigger: 'manual', messages: [row('user', 'words', 'h1')] })
  expect(done.messages).toHaveLength(1)
  expect(seen.own).toBe(1)
  expect(seen.said).toEqual(['too small: Claude Code compacts by itself', 'what went'])
})

test('a look back is answered by the program, for this session', async ($, on) => {
  const seen = beneath(on, [{ content: 'the original' }])
  const done = await $.tool.call({ tool: 'mcp__compactor__restore_context', reference: 't3' })
  expect(done.result).toBe('the original')
  const call = JSON.parse(seen.runs[0].init?.stdin ?? seen.runs[0].stdin)
  expect([call.session_id, call.name, call.arguments]).toEqual(['a-session', 'restore_context', { reference: 't3' }])
})

test('a program that has nothing to say refuses the look back in words', async ($, on) => {
  beneath(on, [])
  const done = await $.tool.call({ tool: 'mcp__compactor__search_context', text: 'queue' })
  expect(typeof done.deny).toBe('string')
})
