// The bridge between Claude Code and the program that `compactor install` wrote into program.json. It carries questions
// and answers and decides nothing. Whatever fails, the client compacts by itself, and a line says why.

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
const AHEAD = 0.8 // of the size at which Claude Code compacts: from there on a plan is made beforehand

let answeredAt // time of the model's last answer in this process
let mayFork = false // after the first complete turn
let shortenOver = 0 // characters; 0: never
let plansAhead = false
let limit // tokens at which Claude Code compacts, as of the last turn's end
let isAhead = false // a plan for the next compaction was made, or is being made
const receipts = new Map() // of compactions in this process, by the beginning of their views

const run = async ($, verb, call) => {
  const { argv, environment = {}, timeoutMs = TIMEOUT_MS } = JSON.parse(await $.fs.read(`${$.plugin.root}/program.json`))
  const init = { env: environment, timeoutMs, ...(call ? { stdin: JSON.stringify(call) } : {}) }
  const { exitCode, stdout, stderr, isStdoutTruncated } = await $.process.run([...argv, verb], init)
  if (exitCode !== 0) throw new Error(stderr.trim().split('\n').pop() || `the program ended with ${exitCode}`)
  if (isStdoutTruncated) throw new Error('the answer of the program is too long')
  return JSON.parse(stdout)
}

// The session's answer to the question of a program that may ask the client's model before it answers.
const planned = async ($, verb, call) => {
  const answers = {}
  for (let round = 0; round < MOST_ROUNDS; round += 1) {
    const { ask, ...answer } = await run($, verb, { ...call, answers })
    if (!ask) return answer
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
  return { pass: `no plan after ${MOST_ROUNDS} rounds of questions` }
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

// The conversation as the program reads it: of the session, or of one of its subagents.
const conversation = async ($, messages, agentId) => {
  const api = await $.session.messages({ as: 'api', ...(agentId ? { agentId } : {}) })
  const { context } = await $.session.usage()
  return {
    session_id: await $.session.id(),
    agent_id: agentId ?? '',
    model: await $.session.model(),
    window_tokens: context.window ?? 0,
    context_tokens: agentId ? 0 : context.tokens ?? 0, // the main conversation's
    idle_seconds: answeredAt === undefined || !mayFork ? null : (Date.now() - answeredAt) / 1000,
    messages: messages.map(shown),
    api: Array.isArray(api) ? api : [],
  }
}

const noted = ($) => (error) => $.ui.log(`no plan beforehand: ${why(error)}`, { to: 'debug' })

// Make a plan in the background once a compaction is near. The program stores it, and uses it if it fits when that comes.
const planAhead = async ($, isTurnOver) => {
  if (!plansAhead) return
  if (isTurnOver || limit === undefined) {
    const { context } = await $.session.usage({ breakdown: 'summary' })
    limit = context.breakdown?.autoCompactThreshold ?? Infinity // off
  }
  const { context } = await $.session.usage()
  const isNear = (context.tokens ?? 0) >= AHEAD * limit
  const isNew = isNear && !isAhead
  isAhead = isNear
  if (!isNew) return
  const call = await conversation($, await $.session.messages())
  await planned($, 'ahead', { ...call, trigger: 'precompute', context_tokens: limit })
}

export const register = (on) => {
  on('session.start', async ($, e, next) => {
    const started = await next(e)
    try {
      const described = await run($, 'describe')
      shortenOver = described.shorten_over_characters
      plansAhead = described.plans_ahead
      for (const tool of described.tools) await $.tool.register({ ...tool, isDeferred: false })
      await $.command.register(PREVIEW)
    } catch (error) {
      $.ui.log(`no tools to look back with: ${why(error)}`)
    }
    return started
  })

  on('command.run', { command: 'compactor' }, async ($, e) => {
    try {
      const call = await conversation($, await $.session.messages())
      const { text } = await run($, 'preview', { ...call, context_tokens: 0, arguments: e.args ?? '' })
      return { text }
    } catch (error) {
      return { text: `compactor: ${why(error)}` }
    }
  })

  on('session.measure', ($, e, next) => {
    answeredAt = Date.now()
    return next(e)
  })

  on('turn.complete', async ($, e, next) => {
    mayFork ||= e.agentId === undefined
    const done = await next(e)
    if (e.agentId === undefined && (await $.session.surface())) void planAhead($, true).catch(noted($)) // `claude -p` ends here
    return done
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
        const call = { session_id: await $.session.id(), agent_id: agentId ?? '', name, arguments: input }
        return { result: (await run($, 'look-up', call)).content }
      } catch (error) {
        return { deny: why(error) }
      }
    })
  }

  on('session.append', { door: 'tool-result' }, async ($, e, next) => {
    if (e.agentId === undefined) void planAhead($, false).catch(noted($))
    const [block] = e.message.content
    const text = block?.content
    if (!shortenOver || e.message.content.length !== 1 || typeof text !== 'string' || text.length <= shortenOver) return next(e)
    let content
    try {
      const result = { tool: e.origin.tool ?? '', tool_use_id: block.tool_use_id, content: text }
      content = (await run($, 'shorten', { session_id: await $.session.id(), agent_id: e.agentId ?? '', ...result })).content
    } catch (error) {
      $.ui.log(`a large result goes as it is: ${why(error)}`)
    }
    return next(content ? { ...e, message: { ...e.message, content: [{ ...block, content }] } } : e)
  })

  on('session.compact', async ($, e, next) => {
    const isPrepared = e.trigger === 'precompute' // nobody waits for it, and nobody sees it yet
    const started = Date.now()
    let problem, call
    try {
      call = {
        ...(await conversation($, e.messages, e.agentId)),
        trigger: e.trigger,
        started_at: isPrepared ? 0 : started / 1000,
        instructions: e.instructions ?? '',
      }
      const { messages, receipt, pass } = await planned($, 'compact', call)
      if (messages) {
        if (!e.agentId) isAhead = false
        for (const { text } of messages) if (VIEW.test(text)) receipts.set(VIEW.exec(text)[0], receipt)
        if (!isPrepared && !(await $.session.surface())) receipt.split('\n').forEach((line) => $.ui.log(line))
        const own = new Map(e.messages.map((row) => [row.handle, row]))
        return { messages: messages.map((row) => (row.handle ? own.get(row.handle) : row)) }
      }
      problem = pass ?? 'the program gave no answer'
    } catch (error) {
      problem = why(error)
    }
    const lines = [`${problem}: Claude Code compacts by itself`]
    const done = await next(e)
    try {
      if (call && done.messages && !isPrepared) {
        const own = { ...call, why: problem, after: done.messages.map(shown), usage: done.usage ?? {} }
        lines.push(...(await run($, 'receipt', own)).receipt.split('\n'))
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
