import { ownKeyMark } from "../../src/kit/key-claims.ts";
import { sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import { type Chance, chanceOf } from "../support/chance.ts";
import { sharedNats } from "../support/nats.ts";
import {
  type Caller,
  type EngineName,
  makeHome,
  startTestServer,
  type TestServer,
} from "../support/server.ts";
import { until } from "../support/until.ts";
import {
  type Answer,
  drawUnit,
  explain,
  type First,
  functions,
  Model,
  type Stored,
  type Unit,
} from "./batches-model.ts";
import type { AttackOptions, AttackResult, AttackSuite } from "./suite.ts";

/** Sends a unit; a test puts one in between that does what it must not. */
export type Send = (unit: Unit) => Promise<Answer>;
export type Plant = (send: Send) => Send;

const sizes = {
  short: { calls: 250, rounds: 12, together: 40 },
  long: { calls: 4_000, rounds: 150, together: 60 },
};

export const suite: AttackSuite = {
  name: "batches",
  about: "callers who use a key twice, in batches, alone and at once, for the same and for something else",
  run: (options) => attackBatches(options),
};

export async function attackBatches(
  options: AttackOptions,
  plant: Plant = (send) => send,
): Promise<AttackResult> {
  const { seed, long, engines, log } = options;
  const size = sizes[long ? "long" : "short"];
  const breaches: string[] = [];
  let attempts = 0;
  for (const engine of engines) {
    const { nodes, stop } = await startNodes(engine);
    try {
      const store = nodes[0]!.running.domain.store;
      const chance = chanceOf(`${seed}`);
      let tag = 0;
      const nextTag = () => ++tag;
      const sends = nodes.map((node) => plant(sender(node)));
      const found = [
        ...(await oneByOne(chance.branch("alone"), { sends, store, calls: size.calls, nextTag })),
        ...(await atOnce(chance.branch("at once"), { sends, store, ...size, nextTag })),
      ].map((breach) => `${engine}: ${breach}`);
      attempts += size.calls + size.rounds * size.together;
      breaches.push(...found);
      log(`${engine}, ${nodes.length} nodes: ${found.length} got through`);
    } finally {
      await stop();
    }
  }
  const { calls, rounds, together } = size;
  return {
    size: `${engines.length} engines x (${calls} calls + ${rounds} rounds of ${together})`,
    attempts,
    breaches,
  };
}

async function startNodes(engine: EngineName): Promise<{ nodes: TestServer[]; stop(): Promise<void> }> {
  const home = await makeHome(engine);
  const nats = engine === "postgres" ? (await sharedNats()).url : undefined;
  const nodes: TestServer[] = [];
  for (const nodeId of engine === "postgres" ? ["a", "b"] : ["a"])
    nodes.push(await startTestServer({ engine, home, settings: { nodeId }, ...(nats && { nats }) }));
  const register = async (body: object) => {
    const { status } = await nodes[0]!.rpc("SvcService", "RegisterFunction", body);
    if (status !== 200) throw new Error(`a function was refused: ${status} ${JSON.stringify(body)}`);
  };
  for (const id of functions) await register({ id });
  await register({ id: "started", triggers: [{ event: "start" }] });
  await register({ id: "calmed", triggers: [{ event: "calm" }], debounce: { periodMs: 3_600_000 } });
  for (const node of nodes)
    await until(async () => (await node.api("/ready")).status === 200, { about: "a node", everyMs: 20 });
  const stop = async () => {
    for (const node of nodes) await node.stop();
    await home.remove();
  };
  return { nodes, stop };
}

const itemBody = (unit: Unit, at: number) => {
  const { name, key, tag } = unit.items[at]!;
  const field = unit.verb.startsWith("Publish")
    ? "topic"
    : unit.verb.startsWith("Invoke")
      ? "functionId"
      : "event";
  return {
    [field]: name,
    data: { tag },
    ...(key !== undefined && !unit.byHeader && { idempotencyKey: key }),
  };
};

function sender(node: TestServer): Send {
  const call = async (unit: Unit): Promise<Awaited<ReturnType<Caller["api"]>>> => {
    const { verb, items } = unit;
    const service = verb.startsWith("Publish") ? "PubSubService" : "SvcService";
    if (verb.endsWith("Batch")) {
      const list = items.map((_, at) => itemBody(unit, at));
      return node.rpc(service, verb, { [service === "PubSubService" ? "messages" : "events"]: list });
    }
    const body = { ...itemBody(unit, 0), ...(verb.endsWith("Sync") && { timeoutMs: 1 }) };
    const key = unit.byHeader ? items[0]!.key : undefined;
    return node.rpc(service, verb, body, key === undefined ? {} : { headers: { "idempotency-key": key } });
  };
  return async (unit) => {
    if (unit.verb === "Slot") return fireSlot(node, unit);
    const { status, body } = await call(unit);
    return { status, message: body.message ?? "", results: status === 200 ? resultsOf(unit, body) : [] };
  };
}

// biome-ignore lint/suspicious/noExplicitAny: as it came
function resultsOf({ verb }: Unit, body: any): First[] {
  // biome-ignore lint/suspicious/noExplicitAny: as it came
  const list: any[] = verb.endsWith("Batch") ? (body.results ?? []) : [body];
  return list.map((one) => ({
    eventId: one.eventId ?? "",
    sequence: one.sequence,
    runIds:
      verb === "InvokeFunctionSync"
        ? [one.result.runId]
        : verb === "InvokeFunction"
          ? [one.runId]
          : verb === "TriggerSync"
            ? (one.results ?? []).map(({ runId }: { runId: string }) => runId)
            : verb.startsWith("Publish")
              ? undefined
              : (one.runIds ?? []),
  }));
}

/** As the leader of cron fires a slot. */
async function fireSlot(node: TestServer, { items }: Unit): Promise<Answer> {
  const [{ name, key, tag }] = items as [Unit["items"][0]];
  const value = { tag };
  try {
    const { eventId, runIds, position } = await node.running.domain.events.invoke(
      {
        functionId: name,
        data: JSON.stringify(value),
        value,
        metadata: null,
        idempotencyKey: key!,
        ownKey: true,
      },
      { environmentId: node.env, source: "cron", runId: undefined },
    );
    const first = { eventId, runIds, sequence: position === undefined ? undefined : `${position}` };
    return { status: 200, message: "", results: [first] };
  } catch (error) {
    const { kind, message } = error as { kind?: string; message: string };
    return { status: kind === "already_exists" ? 409 : 500, message, results: [] };
  }
}

interface Scene {
  sends: readonly Send[];
  store: Store;
  nextTag: () => number;
}

/** Of calls one after the other it is known what each must answer. */
async function oneByOne(
  chance: Chance,
  { sends, store, calls, nextTag }: Scene & { calls: number },
): Promise<string[]> {
  const model = new Model();
  const breaches: string[] = [];
  for (let call = 0; call < calls && breaches.length < 10; call++) {
    // A window of keys that moves on: some are new, some were used lately.
    const keys = Array.from({ length: 10 }, (_, n) => `alone.${Math.floor(call / 6) + n}`);
    const unit = drawUnit(chance, { keys, nextTag });
    breaches.push(...model.check(unit, await chance.oneOf(sends)(unit)));
  }
  const { events, messages } = await readStored(store);
  for (const [rows, expected] of [
    [events, model.events],
    [messages, model.messages],
  ] as const)
    if (rows.map(({ tag }) => tag).join() !== expected.join())
      breaches.push(
        `the log is not what the calls came to: ${rows.length} entries, expected ${expected.length}`,
      );
  return [...breaches, ...(await checkLogs(store))];
}

/** Of calls side by side it is known what they cannot have come to. */
async function atOnce(
  chance: Chance,
  { sends, store, rounds, together, nextTag }: Scene & { rounds: number; together: number },
): Promise<string[]> {
  const calls: { unit: Unit; answer: Answer }[] = [];
  for (let round = 0; round < rounds; round++) {
    // Some keys are of the last round.
    const keys = Array.from(
      { length: chance.between(3, 16) },
      (_, n) => `round.${round - (n % 5 === 4 ? 1 : 0)}.${n}`,
    );
    const units = Array.from({ length: together }, () => drawUnit(chance, { keys, nextTag }));
    const answers = await Promise.all(units.map((unit) => chance.oneOf(sends)(unit)));
    calls.push(...units.map((unit, at) => ({ unit, answer: answers[at]! })));
  }
  const stored = await readStored(store);
  const firstTag = Math.min(...calls.flatMap(({ unit }) => unit.items.map(({ tag }) => tag)));
  const own = {
    events: stored.events.filter(({ tag }) => tag >= firstTag),
    messages: stored.messages.filter(({ tag }) => tag >= firstTag),
    keys: new Map([...stored.keys].filter(([name]) => name.includes("round."))),
  };
  return [...explain(calls, own), ...(await checkLogs(store))];
}

async function readStored(store: Store): Promise<Stored> {
  const logOf = async (table: string) => {
    const rows = await store.all<{ id: string; position: number; data: string }>(
      sql`SELECT id, position, data FROM ${sql.raw(table)} ORDER BY position`,
    );
    return rows.map(({ data, ...row }) => ({ ...row, tag: (JSON.parse(data) as { tag: number }).tag }));
  };
  const keys = await store.all<{ key: string; function_id: string | null; event_id: string }>(
    sql`SELECT key, function_id, event_id FROM idempotency_keys`,
  );
  return {
    events: await logOf("events"),
    messages: await logOf("topic_messages"),
    keys: new Map(
      keys.map(({ key, function_id, event_id }) => [
        key.replace(ownKeyMark, "own "),
        { use: function_id ?? "emit", eventId: event_id },
      ]),
    ),
  };
}

/** What holds of every log, whatever was called. */
async function checkLogs(store: Store): Promise<string[]> {
  const breaches: string[] = [];
  for (const [table, heads] of [
    ["events", "heads"],
    ["topic_messages", "topic_heads"],
  ] as const) {
    const [row] = await store.all<{ count: number; last: number; head: number }>(sql`SELECT count(*) AS count,
      max(position) AS last, (SELECT max(position) FROM ${sql.raw(heads)}) AS head FROM ${sql.raw(table)}`);
    if (row!.count !== row!.last || row!.last !== row!.head)
      breaches.push(`${table} has a gap: ${JSON.stringify(row)}`);
  }
  const started = await store.all(sql`SELECT e.id, count(r.id) AS runs FROM events e
    LEFT JOIN runs r ON r.event_id = e.id WHERE e.name IN ('start', 'invoked.one', 'invoked.two')
    GROUP BY e.id HAVING count(r.id) <> 1`);
  if (started.length > 0) breaches.push(`not one run each: ${JSON.stringify(started.slice(0, 5))}`);
  const orphans = await store.all(sql`SELECT id FROM runs WHERE event_id NOT IN (SELECT id FROM events)`);
  if (orphans.length > 0) breaches.push(`${orphans.length} runs of no event`);
  const [calm] = await store.all<{ armed: string | null; last: string | null }>(sql`SELECT
    (SELECT event_id FROM debounces WHERE function_id = 'calmed') AS armed,
    (SELECT id FROM events WHERE name = 'calm' ORDER BY position DESC LIMIT 1) AS last`);
  if (calm!.armed !== calm!.last)
    breaches.push(`the last event in order does not win: ${JSON.stringify(calm)}`);
  return breaches;
}
