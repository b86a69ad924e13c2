// The shim between Pi and the program that `compactor install` named in program.json. It carries questions and answers
// and decides nothing. Whatever goes wrong, Pi compacts by itself, and a line says so.

import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { buildSessionProjection, convertToLlm } from '@earendil-works/pi-coding-agent'

const REDRAWN_MS = 1_500 // a terminal draws the transcript anew behind a compaction; what was shown before is gone
const MOST_ROUNDS = 6 // of questions: in pieces, and the last piece
const PATIENCE_MS = 120_000 // for one run of the program
const SPOKEN = ['user', 'assistant', 'toolResult'] // other messages are the host's, of commands and extensions

const run = (verb, call, signal) =>
  new Promise((resolve, reject) => {
    const { argv, environment = {}, timeoutMs = PATIENCE_MS } = JSON.parse(readFileSync(new URL('program.json', import.meta.url), 'utf8'))
    const child = spawn(argv[0], [...argv.slice(1), verb], { env: { ...process.env, ...environment }, signal, timeout: timeoutMs, windowsHide: true })
    const said = { stdout: '', stderr: '' }
    for (const name of ['stdout', 'stderr']) child[name].setEncoding('utf8').on('data', (text) => (said[name] += text))
    child.on('error', reject)
    child.stdin.on('error', () => {}) // it ended without reading
    child.on('close', (code, killed) => {
      try {
        if (code !== 0) throw new Error(said.stderr.trim().split('\n').pop() || `the program ended with ${killed ?? code}`)
        resolve(JSON.parse(said.stdout))
      } catch (error) {
        reject(error)
      }
    })
    child.stdin.end(JSON.stringify(call))
  })

const why = (error) => {
  const text = String(error?.message ?? error).slice(0, 300)
  return /ENOENT/.test(text) ? `${text}: run \`compactor install pi\` again` : text
}

// Where no screen is there nor a program that shows notes (pi -p): beside the answer.
const tell = ({ hasUI, ui }, text, kind = 'info') => (hasUI ? ui.notify(text, kind) : console.error(text))

const parts = (content) => (typeof content === 'string' ? [{ type: 'text', text: content }] : content)
const words = (content) => parts(content).flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n')
const inApi = (content) =>
  parts(content).flatMap((part) => {
    if (part.type === 'image') return [{ type: 'image', source: { type: 'base64', media_type: part.mimeType, data: part.data } }]
    return part.type === 'text' ? [{ type: 'text', text: part.text }] : []
  })
const inPi = (content) =>
  parts(content).map((part) => {
    const { data, media_type: mimeType } = part.source ?? {}
    return data ? { type: 'image', data, mimeType } : { type: 'text', text: part.text ?? JSON.stringify(part) }
  })

// One of Pi's messages as a row, and in the API's form for what a row cannot show.
const row = ({ role, content, toolCallId, isError }, handle, isSpoken) => {
  const text = words(content)
  if (role === 'assistant') {
    const calls = content.filter(({ type }) => type === 'toolCall')
    return [{ role, text, handle, toolUses: calls.map(({ id, name, arguments: input }) => ({ tool_use_id: id, tool: name, input })) }]
  }
  if (role === 'toolResult') {
    const result = { type: 'tool_result', tool_use_id: toolCallId, content: inApi(content) }
    const toolResults = [{ tool_use_id: toolCallId, text, isError }]
    return [{ role: 'user', text: '', handle, toolUses: [], toolResults }, { role: 'user', content: [result] }]
  }
  const told = isSpoken ? text : `<system-reminder>\n${text}\n</system-reminder>`
  return [{ role: 'user', text: told, handle, toolUses: [] }, { role: 'user', content: inApi(content) }]
}

const spoken = (entries) => {
  const rows = buildSessionProjection(entries).entries.flatMap(({ sourceEntry, messages }) =>
    messages
      .filter(({ role }) => role !== 'system')
      .flatMap((own) => convertToLlm([own]).map((message) => row(message, sourceEntry.id, SPOKEN.includes(own.role)))),
  )
  return { messages: rows.map(([shown]) => shown), api: rows.flatMap(([, api]) => api ?? []) }
}

// The originals of a branch, as if Pi had never compacted it.
const transcript = (entries) => {
  const originals = entries.filter(({ type }) => type !== 'compaction')
  return spoken(originals.map((entry, at) => ({ ...entry, parentId: originals[at - 1]?.id ?? null })))
}

const counted = ({ input, output, cacheRead, cacheWrite }) => ({
  input_tokens: input,
  output_tokens: output,
  cache_read_input_tokens: cacheRead,
  cache_creation_input_tokens: cacheWrite,
})

const ask = async ({ modelRegistry, model }, { model: named, system, prompt, maxTokens }, signal) => {
  const asked = modelRegistry.find(model.provider, named) ?? model
  const messages = [{ role: 'user', content: [{ type: 'text', text: prompt }], timestamp: Date.now() }]
  const said = await modelRegistry.complete(asked, { systemPrompt: system, messages }, { maxTokens, signal, cacheRetention: 'none' })
  const reason = said.errorMessage ?? said.stopReason
  return { isAnswered: said.stopReason === 'stop', text: words(said.content), reason, usage: counted(said.usage) }
}

const compaction = async ({ preparation, branchEntries, customInstructions, reason, signal }, ctx) => {
  const call = {
    session_id: ctx.sessionManager.getSessionId(),
    client: 'Pi',
    trigger: reason === 'manual' ? 'manual' : 'auto',
    instructions: customInstructions ?? '',
    model: ctx.model.id,
    cards_model: ctx.model.id,
    window_tokens: ctx.model.contextWindow,
    context_tokens: preparation.tokensBefore,
    as_summary: true,
    restore_tool: 'restore_context',
    ...transcript(branchEntries),
  }
  const answers = {}
  for (let round = 0; round < MOST_ROUNDS; round += 1) {
    const { ask: questions, summary, kept, receipt, pass } = await run('compact', { ...call, answers }, signal)
    if (summary) return { summary, firstKeptEntryId: kept, tokensBefore: preparation.tokensBefore, details: { receipt } }
    if (!questions) throw new Error(pass ?? 'the program said nothing')
    await Promise.all(
      questions.map(async (question) => {
        answers[question.id] = await ask(ctx, question, signal).catch((error) => ({ isAnswered: false, reason: why(error) }))
      }),
    )
  }
  throw new Error('asked too often')
}

export default (pi) => {
  pi.on('session_start', async (_, ctx) => {
    try {
      const { tools } = await run('describe', {})
      for (const { name, description, inputSchema } of tools) {
        const execute = async (_id, input, signal, _onUpdate, { sessionManager }) => {
          const { content } = await run('look-up', { session_id: sessionManager.getSessionId(), name, arguments: input }, signal)
          return { content: inPi(content), details: undefined }
        }
        pi.registerTool({ name, label: name, description, parameters: inputSchema, execute })
      }
    } catch (error) {
      tell(ctx, `compactor: no tools to look back with: ${why(error)}`, 'warning')
    }
  })

  pi.registerCommand('compactor', {
    description: 'What a compaction now would take out of sight: preview [focus]',
    handler: async (typed, ctx) => {
      const { sessionManager, model } = ctx
      const of = { session_id: sessionManager.getSessionId(), model: model?.id ?? '', window_tokens: model?.contextWindow ?? 0 }
      try {
        tell(ctx, (await run('preview', { ...of, arguments: typed, ...transcript(sessionManager.getBranch()) })).text)
      } catch (error) {
        tell(ctx, `compactor: ${why(error)}`, 'warning')
      }
    },
  })

  let problem // of ours, where Pi compacts by itself

  pi.on('session_before_compact', async (event, ctx) => {
    try {
      return { compaction: await compaction(event, ctx) }
    } catch (error) {
      problem = why(error)
      if (!event.signal.aborted) tell(ctx, `compactor: ${problem}; Pi compacts by itself`, 'warning')
    }
  })

  const receiptOfPi = async ({ id, usage }, { sessionManager, model }) => {
    const branch = sessionManager.getBranch()
    const before = branch.slice(0, branch.findIndex((entry) => entry.id === id))
    const of = { session_id: sessionManager.getSessionId(), client: 'Pi', model: model?.id ?? '', why: problem }
    const call = { ...of, ...transcript(before), after: spoken(branch).messages, usage: usage ? counted(usage) : {} }
    return (await run('receipt', call)).receipt
  }

  pi.on('session_compact', async ({ compactionEntry, fromExtension }, ctx) => {
    try {
      const receipt = fromExtension ? compactionEntry.details?.receipt : await receiptOfPi(compactionEntry, ctx)
      if (!receipt) return // another extension's compaction
      if (ctx.mode === 'tui') setTimeout(() => tell(ctx, receipt), REDRAWN_MS)
      else tell(ctx, receipt)
    } catch {} // why there is none was said before
  })
}
