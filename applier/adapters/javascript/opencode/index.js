// The bridge between OpenCode and our program. It carries questions and answers and decides nothing.
//
// OpenCode lets a plugin change the prompt of its compaction, the messages in that prompt and the text of the answer.
// So the compaction's own request asks our planner's question, and our view takes the place of the answer. Until that
// request is sent any failure leaves OpenCode its own compaction. If the program fails after it, the summary is the
// whole transcript, because the answer to the planner's question is none: nothing is lost, and OpenCode's next
// compaction shortens it.

import { reason, run } from './program.js'

const TOAST_MS = 15_000
const NO_QUESTION = 'Answer with the one word: done' // the plan needs no model, and OpenCode asks one in any case
const pending = new Map() // compactions between the first hook and the last, by session
const windows = new Map() // context windows in tokens, by session

const textOf = (parts, chosen = () => true) => parts.filter((part) => part.type === 'text' && !part.ignored && chosen(part)).map(({ text }) => text).join('\n')
const dataUrl = /^data:([^;,]+);base64,(.*)$/s
const image = ({ mime = '', url = '' }) => {
  const [, type, data] = mime.startsWith('image/') ? dataUrl.exec(url) ?? [] : []
  return data ? [{ type: 'image', source: { type: 'base64', media_type: type, data } }] : []
}

const userRows = ({ info, parts }) => {
  const typed = textOf(parts, ({ synthetic }) => !synthetic)
  const added = textOf(parts, ({ synthetic }) => synthetic)
  const text = [typed, added && `<system-reminder>\n${added}\n</system-reminder>`].filter(Boolean).join('\n')
  const images = parts.filter(({ type }) => type === 'file').flatMap(image)
  const content = [...(text ? [{ type: 'text', text }] : []), ...images]
  return content.length ? [[{ role: 'user', text, handle: info.id, toolUses: [] }, { role: 'user', content }]] : []
}

const assistantRows = ({ info, parts }) => {
  const calls = parts.filter(({ type }) => type === 'tool')
  const toolUses = calls.map(({ callID, tool, state }) => ({ tool_use_id: callID, tool, input: state.input ?? {} }))
  const toolResults = calls.map(({ callID, state }) => {
    const isError = state.status !== 'completed'
    return { tool_use_id: callID, text: (isError ? state.error : state.output) ?? 'no result', isError }
  })
  const said = [{ role: 'assistant', text: textOf(parts), handle: info.id, toolUses }]
  return calls.length ? [said, [{ role: 'user', text: '', handle: `${info.id}.results`, toolUses: [], toolResults }]] : [said]
}

const isCompaction = ({ info, parts }) => info.summary === true || parts.some(({ type }) => type === 'compaction')

const transcript = (messages) => {
  const rows = messages.flatMap((message) => (message.info.role === 'user' ? userRows : assistantRows)(message))
  return { messages: rows.map(([row]) => row), api: rows.flatMap(([, api]) => api ?? []) }
}

// The transcript as one text.
const whole = ({ messages }) =>
  messages
    .map(({ role, text, toolUses, toolResults = [] }) => {
      const calls = toolUses.map(({ tool, input }) => `[${tool} ${JSON.stringify(input)}]`)
      return [`[${role}]`, text, ...calls, ...toolResults.map((result) => result.text)].filter(Boolean).join('\n')
    })
    .join('\n\n')

const unanswered = (questions, why) => Object.fromEntries(questions.map(({ id }) => [id, { isAnswered: false, reason: why }]))

// Answer the program's questions until it gives a summary; OpenCode asks one question in a compaction, so all others
// stay unanswered, and the program falls back to rules.
const finish = async (call, answers) => {
  let answer = await run('compact', { ...call, answers })
  if (answer.ask) answer = await run('compact', { ...call, answers: { ...answers, ...unanswered(answer.ask, 'OpenCode asks one question in a compaction') } })
  if (!answer.summary) throw new Error(answer.pass ?? 'the program gave no answer')
  return answer
}

export default async ({ client }) => {
  const notify = async (message, variant = 'info') => {
    if (process.argv.includes('run')) console.error(message)
    const log = client.app.log({ body: { service: 'compactor', level: variant === 'warning' ? 'warn' : 'info', message } })
    const toast = client.tui.showToast({ body: { title: 'compactor', message, variant, duration: TOAST_MS } })
    await Promise.allSettled([log, toast])
  }
  const warn = (error, consequence) => notify(`compactor: ${reason(error, 'opencode')}; ${consequence}`, 'warning')

  const prepare = async (session, head, output) => {
    const { data: all } = await client.session.messages({ path: { id: session } })
    const last = all.findIndex(({ info }) => info.id === head.at(-1).info.id)
    const { auto } = all.flatMap(({ parts }) => parts).findLast(({ type }) => type === 'compaction') ?? {}
    const newest = all.slice(last + 1).filter((message) => message.info.role === 'user' && !isCompaction(message))
    const { providerID, modelID } = head.findLast(({ info }) => info.role === 'user')?.info.model ?? {}
    const call = {
      session_id: session,
      client: 'OpenCode',
      trigger: auto ? 'auto' : 'manual',
      started_at: Date.now() / 1000,
      instructions: newest.map(({ parts }) => textOf(parts, ({ synthetic }) => !synthetic)).join('\n'),
      model: modelID ?? '',
      cards_model: modelID ?? '',
      window_tokens: windows.get(session) ?? 0,
      as_summary: 'all',
      restore_tool: 'restore_context',
      ...transcript(all.slice(0, last + 1).filter((message) => !isCompaction(message))),
    }
    const answer = await run('compact', { ...call, answers: {} })
    if (answer.ask?.length === 1) {
      const [{ id, system, prompt }] = answer.ask
      output.prompt = `${system}\n\n${prompt}`
      return { call, question: id }
    }
    const done = answer.summary ? answer : await finish(call, {})
    output.prompt = NO_QUESTION
    return { call, done }
  }

  const hooks = {
    'chat.params': async ({ sessionID, model }) => {
      windows.set(sessionID, model?.limit?.context ?? 0)
    },
    'experimental.session.compacting': async ({ sessionID }, output) => {
      pending.set(sessionID, { output })
    },
    'experimental.chat.messages.transform': async (_, { messages }) => {
      const session = messages[0]?.info.sessionID
      const { output } = pending.get(session) ?? {}
      if (!output) return
      pending.delete(session)
      try {
        pending.set(session, await prepare(session, messages, output))
        messages.length = 0
      } catch (error) {
        output.prompt = undefined
        await warn(error, 'OpenCode compacts by itself')
      }
    },
    'experimental.text.complete': async ({ sessionID }, output) => {
      const { call, question, done } = pending.get(sessionID) ?? {}
      if (!call) return
      pending.delete(sessionID)
      try {
        const { summary, receipt } = done ?? (await finish(call, { [question]: { isAnswered: true, text: output.text } }))
        output.text = summary
        await notify(receipt)
      } catch (error) {
        output.text = whole(call)
        await warn(error, 'nothing was compacted, and OpenCode compacts by itself next time')
      }
    },
  }
  try {
    const { tools } = await run('describe', {})
    const schemas = Object.fromEntries(tools.map(({ name, inputSchema }) => [name, inputSchema]))
    hooks.tool = Object.fromEntries(
      tools.map(({ name, description, inputSchema }) => {
        const execute = async (input, { sessionID }) => {
          const { content } = await run('look-up', { session_id: sessionID, name, arguments: input })
          if (typeof content === 'string') return content
          const attachments = content.flatMap(({ source }) => (source ? [{ type: 'file', mime: source.media_type, url: `data:${source.media_type};base64,${source.data}` }] : []))
          return { output: content.map(({ text }) => text ?? '').join('\n'), attachments }
        }
        return [name, { description, args: inputSchema.properties, execute }]
      }),
    )
    // OpenCode reads every property of `args` as required
    hooks['tool.definition'] = async ({ toolID }, output) => {
      if (schemas[toolID]) output.jsonSchema = schemas[toolID]
    }
  } catch (error) {
    await notify(`compactor: no tools to look back with: ${reason(error, 'opencode')}`, 'warning')
  }
  return hooks
}
