// The bridge between Pi and our program. It carries questions and answers and decides nothing. Whatever fails, Pi
// compacts by itself, and a line says why. It imports Pi only when it needs it: an import at the top that one version
// of Pi lacks would keep that version from starting.

import { reason, run, summarize } from './program.js'

const PI = '@earendil-works/pi-coding-agent'
const FIRST_VERSION = [0, 87] // with every function that is used here
const REDRAWN_MS = 1_500 // a terminal redraws the transcript after a compaction, and earlier notes disappear
const CONVERSATION = ['user', 'assistant', 'toolResult'] // Pi's other messages come from commands and extensions

const why = (error) => reason(error, 'pi')

// The functions of the Pi that runs; an error if it is too old, or offers another interface than the one known here.
const loadPi = async (ctx) => {
  const pi = await import(PI).catch(() => ({}))
  const [major = 0, minor = 0] = String(pi.VERSION ?? '').split('.').map(Number)
  if (major < FIRST_VERSION[0] || (major === FIRST_VERSION[0] && minor < FIRST_VERSION[1]))
    throw new Error(`Pi ${pi.VERSION ?? 'of this version'} is too old: install Pi ${FIRST_VERSION.join('.')} or newer`)
  const missing = ['buildSessionProjection', 'convertToLlm'].filter((name) => typeof pi[name] !== 'function')
  if (typeof ctx.modelRegistry?.complete !== 'function') missing.push('modelRegistry.complete')
  if (missing.length) throw new Error(`Pi ${pi.VERSION} has no ${missing.join(', ')}: pip install -U relevance-compactor`)
  return pi
}

// Show a note; without a screen or a program that shows notes (pi -p) on standard error. It never throws: a context whose
// session has ended refuses every access.
const notify = (ctx, text, kind = 'info') => {
  try {
    if (ctx.hasUI) return ctx.ui.notify(text, kind)
  } catch {}
  console.error(text)
}

const parts = (content) => (typeof content === 'string' ? [{ type: 'text', text: content }] : content)
const words = (content) => parts(content).flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n')
const toApi = (content) =>
  parts(content).flatMap((part) => {
    if (part.type === 'image') return [{ type: 'image', source: { type: 'base64', media_type: part.mimeType, data: part.data } }]
    return part.type === 'text' ? [{ type: 'text', text: part.text }] : []
  })
const toPi = (content) =>
  parts(content).map((part) => {
    const { data, media_type: mimeType } = part.source ?? {}
    return data ? { type: 'image', data, mimeType } : { type: 'text', text: part.text ?? JSON.stringify(part) }
  })

// One of Pi's messages as a row and, for what a row cannot hold, in the API's form.
const row = ({ role, content, toolCallId, isError }, handle, isConversation) => {
  const text = words(content)
  if (role === 'assistant') {
    const calls = content.filter(({ type }) => type === 'toolCall')
    return [{ role, text, handle, toolUses: calls.map(({ id, name, arguments: input }) => ({ tool_use_id: id, tool: name, input })) }]
  }
  if (role === 'toolResult') {
    const result = { type: 'tool_result', tool_use_id: toolCallId, content: toApi(content) }
    const toolResults = [{ tool_use_id: toolCallId, text, isError }]
    return [{ role: 'user', text: '', handle, toolUses: [], toolResults }, { role: 'user', content: [result] }]
  }
  const shown = isConversation ? text : `<system-reminder>\n${text}\n</system-reminder>`
  return [{ role: 'user', text: shown, handle, toolUses: [] }, { role: 'user', content: toApi(content) }]
}

const toRows = (pi, entries) => {
  const rows = pi.buildSessionProjection(entries).entries.flatMap(({ sourceEntry, messages }) =>
    messages
      .filter(({ role }) => role !== 'system')
      .flatMap((own) => pi.convertToLlm([own]).map((message) => row(message, sourceEntry.id, CONVERSATION.includes(own.role)))),
  )
  return { messages: rows.map(([shown]) => shown), api: rows.flatMap(([, api]) => api ?? []) }
}

// The originals of a branch, without Pi's compactions.
const originals = (pi, entries) => {
  const kept = entries.filter(({ type }) => type !== 'compaction')
  return toRows(pi, kept.map((entry, at) => ({ ...entry, parentId: kept[at - 1]?.id ?? null })))
}

const usageInApi = ({ input, output, cacheRead, cacheWrite }) => ({
  input_tokens: input,
  output_tokens: output,
  cache_read_input_tokens: cacheRead,
  cache_creation_input_tokens: cacheWrite,
})

const ask = async ({ modelRegistry, model }, { model: named, system, prompt, maxTokens }, signal) => {
  const asked = modelRegistry.find(model.provider, named) ?? model
  const messages = [{ role: 'user', content: [{ type: 'text', text: prompt }], timestamp: Date.now() }]
  const answer = await modelRegistry.complete(asked, { systemPrompt: system, messages }, { maxTokens, signal, cacheRetention: 'none' })
  const stop = answer.errorMessage ?? answer.stopReason
  return { isAnswered: answer.stopReason === 'stop', text: words(answer.content), reason: stop, usage: usageInApi(answer.usage) }
}

const compaction = async (pi, { preparation, branchEntries, customInstructions, reason: trigger, signal }, ctx) => {
  const call = {
    session_id: ctx.sessionManager.getSessionId(),
    client: 'Pi',
    trigger: trigger === 'manual' ? 'manual' : 'auto',
    started_at: Date.now() / 1000,
    instructions: customInstructions ?? '',
    model: ctx.model.id,
    cards_model: ctx.model.id,
    window_tokens: ctx.model.contextWindow,
    context_tokens: preparation.tokensBefore,
    as_summary: 'front',
    restore_tool: 'restore_context',
    ...originals(pi, branchEntries),
  }
  const { summary, kept, receipt, unchanged } = await summarize(call, (question) => ask(ctx, question, signal), signal)
  if (unchanged) {
    notify(ctx, unchanged)
    return { cancel: true }
  }
  return { compaction: { summary, firstKeptEntryId: kept, tokensBefore: preparation.tokensBefore, details: { receipt } } }
}

export default (host) => {
  host.on('session_start', async (_, ctx) => {
    try {
      await loadPi(ctx)
      const { tools } = await run('describe', {})
      for (const { name, description, inputSchema } of tools) {
        const execute = async (_id, input, signal, _onUpdate, { sessionManager }) => {
          const { content } = await run('look-up', { session_id: sessionManager.getSessionId(), name, arguments: input }, signal)
          return { content: toPi(content), details: undefined }
        }
        host.registerTool({ name, label: name, description, parameters: inputSchema, execute })
      }
    } catch (error) {
      notify(ctx, `compactor: no tools to look back with: ${why(error)}`, 'warning')
    }
  })

  host.registerCommand('compactor', {
    description: 'What a compaction now would remove from sight: preview [focus]',
    handler: async (typed, ctx) => {
      const { sessionManager, model } = ctx
      const session = { session_id: sessionManager.getSessionId(), model: model?.id ?? '', window_tokens: model?.contextWindow ?? 0 }
      try {
        const transcript = originals(await loadPi(ctx), sessionManager.getBranch())
        notify(ctx, (await run('preview', { ...session, arguments: typed, ...transcript })).text)
      } catch (error) {
        notify(ctx, `compactor: ${why(error)}`, 'warning')
      }
    },
  })

  let problem // why Pi compacts by itself

  host.on('session_before_compact', async (event, ctx) => {
    try {
      return await compaction(await loadPi(ctx), event, ctx)
    } catch (error) {
      problem = why(error)
      if (!event.signal?.aborted) notify(ctx, `compactor: ${problem}; Pi compacts by itself`, 'warning')
    }
  })

  const receiptOfPi = async ({ id, usage }, ctx) => {
    const pi = await loadPi(ctx)
    const branch = ctx.sessionManager.getBranch()
    const before = branch.slice(0, branch.findIndex((entry) => entry.id === id))
    const session = { session_id: ctx.sessionManager.getSessionId(), client: 'Pi', model: ctx.model?.id ?? '', why: problem }
    const call = { ...session, ...originals(pi, before), after: toRows(pi, branch).messages, usage: usage ? usageInApi(usage) : {} }
    return (await run('receipt', call)).receipt
  }

  host.on('session_compact', async ({ compactionEntry, fromExtension }, ctx) => {
    try {
      const receipt = fromExtension ? compactionEntry.details?.receipt : await receiptOfPi(compactionEntry, ctx)
      if (!receipt) return // another extension's compaction
      if (ctx.mode === 'tui') setTimeout(() => notify(ctx, receipt), REDRAWN_MS)
      else notify(ctx, receipt)
    } catch {} // the line above has said why there is none
  })
}
