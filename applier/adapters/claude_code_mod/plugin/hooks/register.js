// The bridge between Claude Code and the program that `compactor install` wrote into program.json. It carries questions
// and answers and decides nothing. Whatever fails, the client compacts by itself, and a line says why.
// Claude Code allows `$` only as `$.noun.event(…)` inside a hook, so each hook runs the program itself.

const TOOLS = ['restore_context', 'search_context', 'facts', 'note']
const PREVIEW = {
  name: 'compactor',
  description: 'What a compaction now would remove from sight',
  argumentHint: 'preview [focus]',
  immediate: true,
}
const VIEW = /^<compacted history=\S+/ // the beginning of the text that replaces compacted messages
const ELSEWHERE = 'Compacted by relevance: ctrl+o shows what the agent sees of it, `compactor log` what was done'
const REDRAWN_MS = 1_500 // a terminal redraws the transcript after a compaction, and earlier lines disappear
const MOST_ROUNDS = 6 // of questions for one compaction
const TIMEOUT_MS = 120_000 // of one run of the program

let answeredAt // time of the model's last answer in this process
let mayFork = false // after the first complete turn
let shortenOver = 0 // characters; 0: never
const receipts = new Map() // of compactions in this process, by the beginning of their views

const program = (text) => {
  const { argv, environment = {}, timeoutMs = TIMEOUT_MS } = JSON.parse(text)
  return (verb) => [[...argv, verb], { env: environment, timeoutMs }]
}

const reply = ({ exitCode, stdout, stderr, isStdoutTruncated }) => {
  if (exitCode !== 0) throw new Error(stderr.trim().split('\n').pop() || `the program ended with ${exitCode}`)
  if (isStdoutTruncated) throw new Error('the answer of the program is too long')
  return JSON.parse(stdout)
}

const why = (error) => {
  const text = String(error?.message ?? error).slice(0, 300)
  return /ENOENT/.test(text) ? `${text}: run \`compactor install claude-code\` again` : text
}

// The part of a row that the program reads: text and calls.
const shown = ({ role, text, toolUses, toolResults, handle }) => ({
  role,
  text,
  handle,
  toolUses: toolUses.map(({ tool_use_id, tool, input }) => ({ tool_use_id, tool, input })),
  toolResults: toolResults?.map(({ tool_use_id, text, isError }) => ({ tool_use_id, text, isError })),
})

export const register = (on) => {
  on('session.start', async ($, e, next) => {
    const started = await next(e)
    try {
      const command = program(await $.fs.read(`${$.plugin.root}/program.json`))
      const { tools, shorten_over_characters } = reply(await $.process.run(...command('describe')))
      shortenOver = shorten_over_characters
      for (const tool of tools) await $.tool.register({ ...tool, isDeferred: false })
      await $.command.register(PREVIEW)
    } catch (error) {
      $.ui.log(`no tools to look back with: ${why(error)}`)
    }
    return started
  })

  on('command.run', { command: 'compactor' }, async ($, e) => {
    try {
      const command = program(await $.fs.read(`${$.plugin.root}/program.json`))
      const api = await $.session.messages({ as: 'api' })
      const { context } = await $.session.usage()
      const session = { session_id: await $.session.id(), model: await $.session.model(), window_tokens: context.window ?? 0 }
      const messages = (await $.session.messages()).map(shown)
      const call = { ...session, arguments: e.args ?? '', messages, api: Array.isArray(api) ? api : [] }
      const [argv, init] = command('preview')
      const { text } = reply(await $.process.run(argv, { ...init, stdin: JSON.stringify(call) }))
      return { text }
    } catch (error) {
      return { text: `compactor: ${why(error)}` }
    }
  })

  on('session.measure', ($, e, next) => {
    answeredAt = Date.now()
    return next(e)
  })

  on('turn.complete', ($, e, next) => {
    mayFork ||= e.agentId === undefined
    return next(e)
  })

  // A view has hundreds of lines that the person did not type: show the receipt in its place.
  on('ui.render', { component: 'UserMessage' }, ($, e, next) => {
    const [view] = VIEW.exec(e.props.text) ?? []
    if (!view || e.props.isExpanded) return next(e)
    const { Box, Text } = $.ui.resolve(e)
    const lines = (receipts.get(view) ?? ELSEWHERE).split('\n')
    return Box({ flexDirection: 'column', marginTop: 1, children: lines.map((line) => Text({ children: line })) })
  })

  for (const name of TOOLS) {
    on('tool.call', { tool: `mcp__compactor__${name}` }, async ($, e) => {
      try {
        const { tool, tool_use_id, agentId, requestMeta, ...input } = e
        const command = program(await $.fs.read(`${$.plugin.root}/program.json`))
        const call = { session_id: await $.session.id(), agent_id: agentId ?? '', name, arguments: input }
        const [argv, init] = command('look-up')
        const { content } = reply(await $.process.run(argv, { ...init, stdin: JSON.stringify(call) }))
        return { result: content }
      } catch (error) {
        return { deny: why(error) }
      }
    })
  }

  on('session.append', { door: 'tool-result' }, async ($, e, next) => {
    const [block] = e.message.content
    const text = block?.content
    if (!shortenOver || e.message.content.length !== 1 || typeof text !== 'string' || text.length <= shortenOver) return next(e)
    let content
    try {
      const [argv, init] = program(await $.fs.read(`${$.plugin.root}/program.json`))('shorten')
      const result = { tool: e.origin.tool ?? '', tool_use_id: block.tool_use_id, content: text }
      const stdin = JSON.stringify({ session_id: await $.session.id(), agent_id: e.agentId ?? '', ...result })
      content = reply(await $.process.run(argv, { ...init, stdin })).content
    } catch (error) {
      $.ui.log(`a large result goes as it is: ${why(error)}`)
    }
    return next(content ? { ...e, message: { ...e.message, content: [{ ...block, content }] } } : e)
  })

  on('session.compact', async ($, e, next) => {
    const started = Date.now()
    let problem = `no plan after ${MOST_ROUNDS} rounds of questions`
    let command, call
    try {
      command = program(await $.fs.read(`${$.plugin.root}/program.json`))
      const conversation = e.agentId ? { agentId: e.agentId } : {}
      const api = await $.session.messages({ as: 'api', ...conversation })
      const { context } = await $.session.usage()
      call = {
        session_id: await $.session.id(),
        agent_id: e.agentId ?? '',
        trigger: e.trigger,
        started_at: e.trigger === 'precompute' ? 0 : started / 1000,
        instructions: e.instructions ?? '',
        model: await $.session.model(),
        window_tokens: context.window ?? 0,
        context_tokens: e.agentId ? 0 : context.tokens ?? 0, // the main conversation's
        idle_seconds: answeredAt === undefined || !mayFork ? null : (Date.now() - answeredAt) / 1000,
        messages: e.messages.map(shown),
        api: Array.isArray(api) ? api : [],
      }
      const answers = {}
      for (let round = 0; round < MOST_ROUNDS; round += 1) {
        const [argv, init] = command('compact')
        const stdin = JSON.stringify({ ...call, answers })
        const { ask, messages, receipt, pass } = reply(await $.process.run(argv, { ...init, stdin }))
        if (messages) {
          for (const { text } of messages) if (VIEW.test(text)) receipts.set(VIEW.exec(text)[0], receipt)
          if (e.trigger !== 'precompute' && !(await $.session.surface())) receipt.split('\n').forEach((line) => $.ui.log(line))
          const own = new Map(e.messages.map((row) => [row.handle, row]))
          return { messages: messages.map((row) => (row.handle ? own.get(row.handle) : row)) }
        }
        if (!ask) {
          problem = pass ?? 'the program gave no answer'
          break
        }
        await Promise.all(
          ask.map(async ({ id, via, ...question }) => {
            try {
              answers[id] = via === 'fork' ? await $.model.fork(question) : await $.model.complete(question)
            } catch (error) {
              answers[id] = { isAnswered: false, reason: why(error) }
            }
          }),
        )
      }
    } catch (error) {
      problem = why(error)
    }
    const lines = [`${problem}: Claude Code compacts by itself`]
    const done = await next(e)
    try {
      if (call && done.messages && e.trigger !== 'precompute') {
        const [argv, init] = command('receipt')
        const stdin = JSON.stringify({ ...call, why: problem, after: done.messages.map(shown), usage: done.usage ?? {} })
        lines.push(...reply(await $.process.run(argv, { ...init, stdin })).receipt.split('\n'))
      }
    } catch (error) {
      $.ui.log(`no receipt: ${why(error)}`, { to: 'debug' })
    }
    const show = () => lines.forEach((line) => $.ui.log(line))
    if (await $.session.surface()) setTimeout(show, REDRAWN_MS)
    else show()
    return done
  })
}
