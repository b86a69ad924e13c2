// Runs the program that `compactor install` wrote into program.json, for the clients whose plugins run in Node or Bun.
// Decides nothing: a plugin that cannot get an answer leaves the client its own compaction.

import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'

const TIMEOUT_MS = 120_000 // of one run of the program
const MOST_ROUNDS = 6 // of questions for one compaction

// The JSON that the program answers to `call`; an error with its last line if it fails.
export const run = (verb, call, signal) =>
  new Promise((resolve, reject) => {
    const { argv, environment = {}, timeoutMs = TIMEOUT_MS } = JSON.parse(readFileSync(new URL('program.json', import.meta.url), 'utf8'))
    const env = { ...process.env, ...environment }
    const child = spawn(argv[0], [...argv.slice(1), verb], { env, signal, timeout: timeoutMs, windowsHide: true })
    const output = { stdout: '', stderr: '' }
    for (const name of ['stdout', 'stderr']) child[name].setEncoding('utf8').on('data', (text) => (output[name] += text))
    child.on('error', reject)
    child.stdin.on('error', () => {}) // the program may end without reading
    child.on('close', (code, killed) => {
      try {
        if (code !== 0) throw new Error(output.stderr.trim().split('\n').pop() || `the program ended with ${killed ?? code}`)
        resolve(JSON.parse(output.stdout))
      } catch (error) {
        reject(error)
      }
    })
    child.stdin.end(JSON.stringify(call))
  })

// One line for the person.
export const reason = (error, client) => {
  const text = String(error?.message ?? error).slice(0, 300)
  return /ENOENT/.test(text) ? `${text}: run \`compactor install ${client}\` again` : text
}

// The summary of a compaction; `ask` puts a question of the program to the client's model.
export const summarize = async (call, ask, signal) => {
  const answers = {}
  for (let round = 0; round < MOST_ROUNDS; round += 1) {
    const answer = await run('compact', { ...call, answers }, signal)
    if (answer.summary || answer.unchanged) return answer
    if (!answer.ask) throw new Error(answer.pass ?? 'the program gave no answer')
    await Promise.all(
      answer.ask.map(async (question) => {
        answers[question.id] = await ask(question).catch((error) => ({ isAnswered: false, reason: reason(error) }))
      }),
    )
  }
  throw new Error(`no plan after ${MOST_ROUNDS} rounds of questions`)
}
