// peer.mjs: the TypeScript client as a real peer, driven line by line.
//
// Reads one JSON array [method, ...arguments] per line and answers each with one line:
// {"ok": value} or {"error": text, "code": sqlstate}. Methods are those of PgflowSqlClient, and
//   compile(flow)               runs the statements of compileFlow
//   work(flow, worker, runs)    a worker's loop with the flow's handlers until these runs ended
// Arguments: a JSON object with host, port, user, database, and settings for the connection.

import { createInterface } from 'node:readline';
import { PgflowSqlClient } from '@pgflow/core';
import { Flow, compileFlow } from '@pgflow/dsl';
import postgres from 'postgres';

const orders = new Flow({ slug: 'orders', maxAttempts: 2, baseDelay: 1, timeout: 30 })
  .step({ slug: 'greet' }, (input) => `hello ${input.run.name}`)
  .array({ slug: 'items' }, (input) => input.run.prices)
  .map({ slug: 'taxed', array: 'items', maxAttempts: 3 }, (price) => price * 2)
  .step({ slug: 'total', dependsOn: ['taxed', 'greet'], baseDelay: 2, timeout: 9 }, (input) => ({
    text: `${input.greet}, ${input.run.name}`,
    sum: input.taxed.reduce((sum, price) => sum + price, 0),
  }));

const fragile = new Flow({ slug: 'Fragile', maxAttempts: 1 })
  .step({ slug: 'risky', startDelay: 0 }, (input) => {
    if (input.run.fail) throw new Error('too risky');
    return 'lucky';
  })
  .step({ slug: 'after', dependsOn: ['risky'] }, (input) => `${input.risky} ${input.run.n}`);

const squares = new Flow({ slug: 'squares' })
  .map({ slug: 'square' }, (number) => number * number)
  .map({ slug: 'text', array: 'square' }, (number) => String(number))
  .step({ slug: 'joined', dependsOn: ['text'] }, (input) => input.text.join(' '));

const shared = new Flow({ slug: 'shared' })
  .step({ slug: 'go' }, () => 'at once')
  .step({ slug: 'after', dependsOn: ['go'] }, (input) => [input.go, 'theirs']);

const flows = Object.fromEntries([orders, fragile, squares, shared].map((flow) => [flow.slug, flow]));
const { settings, ...place } = JSON.parse(process.argv[2]);
const sql = postgres({ ...place, max: 1, connection: settings, onnotice: () => {} });
const client = new PgflowSqlClient(sql);

async function handle(flow, task) {
  try {
    const output = await flow.getStepDefinition(task.step_slug).handler(task.input, {});
    await client.completeTask(task, output);
  } catch (error) {
    await client.failTask(task, error);
  }
}

async function compile(slug) {
  const statements = compileFlow(flows[slug]);
  for (const statement of statements) await sql.unsafe(statement);
  return statements.length;
}

async function work(slug, worker, runs) {
  const handled = [];
  const deadline = Date.now() + 60_000;
  for (;;) {
    if (Date.now() > deadline) throw new Error('the runs did not end within 60 s');
    const [{ left }] = await sql`
      select count(*)::int as left from pgflow.runs
       where run_id = any(${runs}::uuid[]) and status = 'started'`;
    if (left === 0) return handled;
    const messages = await client.readMessages(slug, 5, 2, 1, 20);
    const tasks = await client.startTasks(slug, messages.map((one) => one.msg_id), worker);
    for (const task of tasks) {
      handled.push([task.run_id, task.step_slug, task.task_index, task.input]);
      await handle(flows[slug], task);
    }
  }
}

async function answer(line) {
  const [method, ...args] = JSON.parse(line);
  const own = { compile, work };
  try {
    const value = await (own[method] ?? client[method].bind(client))(...args);
    return { ok: value ?? null };
  } catch (error) {
    return { error: error.message, code: error.code ?? null };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await answer(line)));
}
await sql.end();
