import type { EventDraft } from "../../src/domain/engine/emit/rules.ts";
import { joinGroup, type TestMember } from "../support/group-member.ts";
import { type Assignment, pullWorker } from "../support/pull-worker.ts";
import type { TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { type PoisonTable, poisonOf } from "./poison-triggers.ts";

/** An environment of one tenant with a key of its own, and whatever a way needs there. */
export interface Tenant {
  env: string;
  key: string;
}

export interface Item {
  /** The place among the forty; the bad one's is `badAt`. */
  at: number;
  tenant: Tenant;
  /** Of the bad one. */
  poison: string | undefined;
}

/** How a try went: the status of each item, 200 and what follows for what was taken. */
export type Send = () => Promise<number>;

/** A way by which items of many callers meet in one flush. */
export interface Way {
  name: string;
  /** Its combiner, by the name that it is opened with. */
  combiner: string;
  table: PoisonTable;
  /** Prepares the item, and answers how it is sent: all forty at once. */
  prepare(server: TestServer, item: Item): Promise<Send> | Send;
  /** Once for each tenant. */
  open?(server: TestServer, tenant: Tenant): Promise<void>;
  /** After each try. */
  close?(): Promise<void>;
}

const rpcOf =
  (server: TestServer, { key }: Tenant, service: string, method: string, body: object): Send =>
  async () =>
    (await server.rpc(service, method, body, { key })).status;

async function register(server: TestServer, { key }: Tenant, definition: object): Promise<void> {
  const { status, body } = await server.rpc("SvcService", "RegisterFunction", definition, { key });
  if (status !== 200) throw new Error(`a function is refused: ${JSON.stringify(body)}`);
}

let unique = 0;
const fresh = () => `n${++unique}`;

const emitting: Way[] = [
  {
    name: "emit",
    combiner: "events.emit",
    table: "events",
    prepare: (server, { tenant, at, poison }) =>
      rpcOf(server, tenant, "SvcService", "Emit", { event: "poison.plain", data: { at, poison } }),
  },
  {
    name: "emit with a key",
    combiner: "events.emit",
    table: "idempotency_keys",
    prepare: (server, { tenant, poison }) =>
      rpcOf(server, tenant, "SvcService", "Emit", {
        event: "poison.keyed",
        data: {},
        idempotencyKey: `${poison ?? ""}${fresh()}`,
      }),
  },
  {
    name: "invoke",
    combiner: "events.emit",
    table: "events",
    open: (server, tenant) => register(server, tenant, { id: "poison-invoked" }),
    prepare: (server, { tenant, poison }) =>
      rpcOf(server, tenant, "SvcService", "InvokeFunction", {
        functionId: "poison-invoked",
        data: { poison },
      }),
  },
  {
    name: "arm",
    combiner: "events.emit",
    table: "debounces",
    open: (server, tenant) =>
      register(server, tenant, {
        id: "poison-armed",
        triggers: [{ event: "poison.armed" }],
        debounce: { periodMs: 3_600_000, key: "data.key" },
      }),
    prepare: (server, { tenant, poison }) =>
      rpcOf(server, tenant, "SvcService", "Emit", {
        event: "poison.armed",
        data: { key: `${poison ?? ""}${fresh()}` },
      }),
  },
  {
    name: "publish",
    combiner: "topics.publish",
    table: "topic_messages",
    prepare: (server, { tenant, poison }) =>
      rpcOf(server, tenant, "PubSubService", "Publish", { topic: "poison.topic", data: { poison } }),
  },
  {
    name: "publish with a key",
    combiner: "topics.publish",
    table: "idempotency_keys",
    prepare: (server, { tenant, poison }) =>
      rpcOf(server, tenant, "PubSubService", "Publish", {
        topic: "poison.topic",
        data: {},
        idempotencyKey: `${poison ?? ""}${fresh()}`,
      }),
  },
];

const workerId = "poison-worker";
const workerOf = (server: TestServer, { key }: Tenant) =>
  pullWorker({ api: (path, options) => server.api(path, { ...options, key }) }, workerId);

async function jobOf(server: TestServer, tenant: Tenant): Promise<Assignment> {
  const id = "poison-worked";
  const { body } = await server.rpc("SvcService", "InvokeFunction", { functionId: id }, tenant);
  if (!body.runId) throw new Error(`no run was started: ${JSON.stringify(body)}`);
  // Which of the runs it is handed does not matter: there is one for each that asks.
  return until(async () => (await workerOf(server, tenant).poll(1))[0], {
    about: `a job for ${body.runId}`,
    everyMs: 20,
  });
}

async function openWorked(server: TestServer, tenant: Tenant): Promise<void> {
  await register(server, tenant, { id: "poison-worked" });
  await workerOf(server, tenant).register("poison-worked");
}

const reporting = (
  name: string,
  table: PoisonTable,
  body: (job: Assignment, poison: string | undefined) => object,
): Way => ({
  name,
  combiner: "runs.settle",
  table,
  open: openWorked,
  async prepare(server, { tenant, poison }) {
    const job = await jobOf(server, tenant);
    return async () => (await workerOf(server, tenant).report(job, body(job, poison))).status;
  },
});

const stepOf = (job: Assignment, output: unknown) => ({
  id: `${job.run_id}:s:0`,
  name: "s",
  type: "invoke",
  status: "completed",
  output,
});
const left = (job: Assignment, more: object) => ({
  status: "yielded",
  yield: { step_id: `${job.run_id}:y:0`, ...more },
});

const reports: Way[] = [
  reporting("completed", "runs", (_job, poison) => ({ status: "completed", output: { poison } })),
  reporting("progress", "steps", (job, poison) => ({ status: "progress", steps: [stepOf(job, { poison })] })),
  reporting("wait", "waits", (job, poison) =>
    left(job, {
      type: "wait_for_event",
      event_filter: { event: "poison.awaited", match: `data.n > 3 && "${poison ?? ""}" != "a"` },
    }),
  ),
  reporting("child", "invocations", (job, poison) =>
    left(job, { type: "invoke_function", function_id: `${poison ?? ""}poison-invoked` }),
  ),
];

const writes: Way = {
  name: "output",
  combiner: "runs.outputs",
  table: "run_outputs",
  open: openWorked,
  async prepare(server, { tenant, poison }) {
    const { run_id, execution_seq, lease_token } = await jobOf(server, tenant);
    const fence = { runId: run_id, executionSeq: `${execution_seq}`, leaseToken: lease_token };
    const body = { ...fence, name: "told", chunks: [{ poison }] };
    return rpcOf(server, tenant, "SvcService", "WriteRunOutput", body);
  },
};

/** Members of groups, one for each item: what it holds is named by its consumer. */
const members = new Set<TestMember>();
const acks: Way = {
  name: "ack",
  combiner: "groups.settle",
  table: "group_deliveries",
  async prepare(server, { tenant, poison }) {
    const groupName = `poison-${fresh()}`;
    const call = (method: string, body: object) => server.rpc("PubSubService", method, body, tenant);
    await call("CreateConsumerGroup", {
      name: groupName,
      pattern: `topic:${groupName}`,
      ackMode: "ACK_MODE_MANUAL",
      redeliverDelayMs: 60_000,
    });
    const consumerId = poison ?? "fine";
    const member = joinGroup({ url: server.url, key: tenant.key }, { groupName, consumerId });
    members.add(member);
    await call("Publish", { topic: groupName, data: { n: 1 } });
    const [delivery] = await member.wait(1);
    const body = { groupName, eventId: delivery!.eventId, consumerId, ackType: "ACK_TYPE_ACK" };
    return rpcOf(server, tenant, "PubSubService", "AckEvent", body);
  },
  async close() {
    await Promise.all([...members].map((member) => member.leave()));
    members.clear();
  },
};

const bucket = "/api/v1/kv/buckets";
const puts: Way = {
  name: "put",
  combiner: "kv.change",
  table: "kv_keys",
  async open(server, { key }) {
    const { status, body } = await server.api(bucket, { body: { name: "poison" }, key });
    if (status >= 300) throw new Error(`a bucket is refused: ${JSON.stringify(body)}`);
  },
  prepare: (server, { tenant: { key }, poison }) => {
    const path = `${bucket}/poison/keys/${poison ?? ""}${fresh()}`;
    return async () => (await server.api(path, { method: "PUT", body: { n: 1 }, key })).status;
  },
};

export const ways: readonly Way[] = [...emitting, ...reports, writes, acks, puts];

/** Every combiner that there is; one that no way attacks fails the suite's test. */
export const combiners: ReadonlySet<string> = new Set(ways.map((way) => way.combiner));

/** Combiners of which no item can fail for what a caller sends. */
export const unpoisonable: ReadonlyMap<string, string> = new Map([
  ["sessions.attempts", "hashes of a fixed length, counts and instants"],
  ["kv.get", "it writes nothing, and names are checked before they are looked up"],
]);

/** Letters of which no compressor makes less, three bytes each. */
const noise = (count: number, seed: number) => {
  let state = seed * 2 + 1;
  const next = () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return String.fromCharCode(0x4e00 + ((state >>> 8) % 20_000));
  };
  return Array.from({ length: count }, next).join("");
};

/** Drafts behind the doors' checks, as a check that somebody forgets would let them through: the engine's own refusals. */
export const rawDrafts: Record<string, (seed: number) => Partial<EventDraft>> = {
  "a name too long for its index": (seed) => ({ name: noise(2_000, seed) }),
  "a key too long for its index": (seed) => ({ idempotencyKey: noise(2_000, seed) }),
  "a zero byte": () => ({ name: "poison\0" }),
  "a version out of range": () => ({ version: 2 ** 70 }),
  "a version that is no number": () => ({ version: Number.NaN }),
  "data that is no text": () => ({ data: undefined as unknown as string }),
  "a defect in its preparation": () => ({
    get name(): string {
      throw new TypeError("a defect");
    },
  }),
};

export { poisonOf };
