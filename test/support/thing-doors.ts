import type { Operation } from "../../src/kit/operation.ts";
import { everyWay } from "./every-route.ts";
import { joinGroup } from "./group-member.ts";
import { plant } from "./plant.ts";
import { askAt } from "./policy-doors.ts";
import { pullWorker } from "./pull-worker.ts";
import type { TestServer } from "./server.ts";
import { openSocket, type TestSocket } from "./sockets.ts";
import { until } from "./until.ts";

/** One thing of each kind: what denies it, and the text by which it is known wherever it is shown. */
export const hidden: Record<string, { actions: string; resources: string; mark: string }> = {
  stream: { actions: "streams:read,entities:read", resources: "stream:*:hid-customer", mark: "MarkOfStream" },
  event: { actions: "events:subscribe", resources: "event:*:hid.paid", mark: "MarkOfEvent" },
  topic: { actions: "events:subscribe", resources: "event:*:topic%3Ahid.*", mark: "MarkOfTopic" },
  run: { actions: "runs:read", resources: "run:*:*", mark: "MarkOfRun" },
  function: { actions: "functions:read", resources: "function:*:hid-function", mark: "MarkOfFunction" },
  /** By its id alone, which things of other kinds name. */
  served: { actions: "functions:read", resources: "function:*:hid-served", mark: "hid-served" },
  worker: { actions: "functions:read", resources: "workers:*:hid-worker", mark: "hid-worker" },
  secret: { actions: "secrets:read", resources: "secret:*:hid-secret", mark: "hid-secret" },
  kv: { actions: "secrets:read", resources: "kv:*:hid-bucket*", mark: "MarkOfKey" },
  config: { actions: "secrets:read", resources: "config:*:hid-config", mark: "MarkOfConfig" },
  schema: { actions: "schemas:read", resources: "event:*:hid-schema.*", mark: "hid-schema" },
  group: { actions: "events:subscribe", resources: "event:*:group%3Ahid-group", mark: "hid-group" },
  projection: {
    actions: "projections:read",
    resources: "projection:*:hid-projection",
    mark: "hid-projection",
  },
  webhook: { actions: "webhooks:read", resources: "webhook:*:*", mark: "MarkOfWebhook" },
};
export type HiddenKind = keyof typeof hidden;

/** Who looks, and what it has heard so far. */
export interface Looker {
  name: string;
  key: string;
  socket: TestSocket;
  member: ReturnType<typeof joinGroup> | undefined;
}

export interface Doors {
  server: TestServer;
  /** Ids that the world gave its things. */
  ids: Record<"event" | "paid" | "run" | "started", string>;
}

/** Answers everything that it says to the looker, refusals too. */
export type Door = (doors: Doors, looker: Looker) => Promise<string>;

const patterns = ["events:>", "entity:>", "topic:>", "system.>", "system.config.>"];

const rest =
  (path: (ids: Doors["ids"]) => string): Door =>
  async ({ server, ids }, { key }) =>
    JSON.stringify(await server.api(path(ids), { key }));

const rpc =
  (service: string, method: string, body: (ids: Doors["ids"], looker: Looker) => object): Door =>
  async ({ server, ids }, looker) =>
    JSON.stringify(await server.rpc(service, method, body(ids, looker), { key: looker.key }));

const query = (text: string): Door => rpc("QueryService", "ExecuteSQL", () => ({ query: text }));

const entityId = "hid-customer";

/** A door that shows no payloads: with this word in its answer it tells of things of these kinds. */
function telling(door: Door, { word, kinds }: { word: string; kinds: HiddenKind[] }): Door {
  return async (...asked) => {
    const said = await door(...asked);
    return said.includes(word) ? [said, ...kinds.map((kind) => hidden[kind]!.mark)].join() : said;
  };
}

/** Each door that shows things, most of them of more than one kind. */
export const doors: Record<string, Door> = {
  "GET /events": rest(() => "/api/v1/events?limit=200"),
  "GET /events/{id} of a stream": rest(({ event }) => `/api/v1/events/${event}`),
  "GET /events/{id}": rest(({ paid }) => `/api/v1/events/${paid}`),
  "GET /causality of a stream": telling(
    rest(({ event }) => `/api/v1/causality?kind=event&id=${event}`),
    { word: `"entity_id":"${entityId}"`, kinds: ["stream"] },
  ),
  "GET /causality": telling(
    rest(({ paid }) => `/api/v1/causality?kind=event&id=${paid}`),
    { word: '"name":"hid.paid"', kinds: ["event"] },
  ),
  "SQL events": query("SELECT id, name, entity_id, data FROM events"),
  "SQL runs": query("SELECT id, output FROM runs"),
  "SQL functions": query("SELECT id, name FROM functions"),
  ReadStream: rpc("EntityStreamService", "ReadStream", () => ({ entityId })),
  GetEntityHistory: rpc("EntityStreamService", "GetEntityHistory", () => ({ entityId })),
  GetRun: rpc("SvcService", "GetRun", ({ run }) => ({ id: run })),
  ListRuns: rpc("SvcService", "ListRuns", () => ({ limit: 100 })),
  "GetRun of its event": rpc("SvcService", "GetRun", ({ started }) => ({ id: started })),
  GetRunStateAt: rpc("TimeTravelService", "GetRunStateAt", ({ started }) => ({ runId: started })),
  "ReadStream of another": rpc("EntityStreamService", "ReadStream", () => ({ entityId: "open" })),
  "GetEntityHistory of another": rpc("EntityStreamService", "GetEntityHistory", () => ({ entityId: "open" })),
  GetFunction: rpc("SvcService", "GetFunction", () => ({ id: "hid-function" })),
  ListFunctions: rpc("SvcService", "ListFunctions", () => ({ limit: 100 })),
  ListProjections: rpc("ProjectionService", "ListProjections", () => ({ limit: 100 })),
  ListConsumerGroups: rpc("PubSubService", "ListConsumerGroups", () => ({ limit: 100 })),
  ListWebhookSources: rpc("WebhookService", "ListWebhookSources", () => ({})),
  "GET /config/{name}": rest(() => "/api/v1/config/hid-config"),
  "GET /kv/…/keys/{key}": rest(() => "/api/v1/kv/buckets/hid-bucket/keys/k"),
  "GET /events/schemas/{name}": rest(() => "/api/v1/events/schemas/hid-schema.x"),
  "projection's events": async ({ server }, { name, key }) =>
    JSON.stringify(
      await server.rpc(
        "ProjectionService",
        "PollProjectionEvents",
        { name: `wide-${name}`, runnerId: name },
        { key },
      ),
    ),
  jobs: jobsDoor,
  group: async (_doors, { member }) => {
    const refused = await Promise.race([
      member!.over,
      until(() => member!.got.length >= 2 && "taken", { about: "deliveries" }),
    ]);
    return `${refused} ${JSON.stringify(member!.got.map(({ data }) => data))}`;
  },
  socket: async (_doors, { socket }) => socket.texts.join("\n"),
  "socket, replayed": async ({ server }, { key }) => {
    const socket = await openSocket(server.url, { key });
    for (const pattern of ["events:>", "entity:>", "topic:>"])
      await socket.subscribe(pattern, { replay: 100 });
    await until(() => socket.texts.filter((text) => text.includes("the.end")).length >= 3, {
      about: "the end",
    });
    socket.close();
    return socket.texts.join("\n");
  },
  "an endpoint's events": telling(
    rpc("WebhookEndpointService", "CreateWebhookEndpoint", (_ids, { name }) => ({
      ...{ name, url: "https://example.com/", pattern: "events:>" },
    })),
    { word: '"status":200', kinds: ["event", "stream"] },
  ),
};

let jobsAsked = 0;

/** A worker of its own polls after two new events: one of the stream, one of the name. */
async function jobsDoor({ server }: Doors, { name, key }: Looker): Promise<string> {
  const worker = `worker-of-${name}-${++jobsAsked}`;
  await server.api(`/api/v1/workers/${worker}/register`, {
    key,
    body: { function_ids: ["folds"], max_concurrent_jobs: 100 },
  });
  await writeEvents(server);
  const answer = await server.api(`/api/v1/workers/${worker}/jobs?available=100`, { key });
  return JSON.stringify(answer);
}

/** An event that the hidden stream has, and one of the hidden name. */
async function writeEvents(server: TestServer): Promise<{ event: string; paid: string; started: string }> {
  const append = async (id: string, kind: HiddenKind, eventName: string) => {
    const { body } = await server.rpc("EntityStreamService", "AppendEvent", {
      ...{ entityId: id, entityType: "customer", eventName, expectedVersion: -1 },
      data: { note: hidden[kind]!.mark },
    });
    return body.eventId as string;
  };
  const event = await append(entityId, "stream", "customer.named");
  const paid = await append("open", "event", "hid.paid");
  const { body } = await server.rpc("SvcService", "ListRuns", { eventId: event });
  return { event, paid, started: body.runs[0].id };
}

/** All operations that read, asked by the one name that is in the input, as far as that names something. */
export function readDoors(registry: readonly Operation[]): Record<string, Door> {
  const ways = everyWay(registry).filter(
    ({ operation, protocol }) =>
      operation.reads &&
      operation.action !== null &&
      !operation.action.startsWith("platform:") &&
      (protocol === "rest" || protocol === "connect") &&
      operation.name !== "orgs.export",
  );
  return Object.fromEntries(
    ways.map((way) => [
      `${way.operation.name} ${way.method} ${way.path}`,
      async ({ server }, { key }) => (await askAt(server.url, way, { authorization: `Bearer ${key}` })).text,
    ]),
  );
}

interface Denied {
  actions: string;
  /** Behind the org and the project. */
  resources: string;
}

/** A key of a role of its own, to which this is denied, and what is denied to it later. */
export async function lookerKey(server: TestServer, name: string, policy?: Denied, base = "developer") {
  const role = await server.api("/api/v1/roles", { body: { name: `sees-${name}`, base } });
  const deny = async ({ actions, resources }: Denied) => {
    const body = { name: `hides-${name}`, effect: "deny", actions, resources: `irn:svc:*:*:${resources}` };
    const made = await server.api("/api/v1/policies", { body });
    if (made.status !== 201) throw new Error(JSON.stringify(made));
    await server.api(`/api/v1/roles/${role.body.id}/policies`, { body: { policy_id: made.body.id } });
  };
  if (policy) await deny(policy);
  const { body } = await server.api("/api/v1/apikeys", { body: { name, role_ids: [role.body.id] } });
  return { key: body.key as string, deny };
}

/** Who is denied this, and listens from now on. */
export async function lookerOf(server: TestServer, name: string, policy?: Denied): Promise<Looker> {
  const { key } = await lookerKey(server, name, policy);
  await server.rpc("ProjectionService", "RegisterProjection", { name: `wide-${name}`, events: [">"] });
  await server.rpc("PubSubService", "CreateConsumerGroup", { name: `wide-${name}`, pattern: "events:>" });
  const socket = await openSocket(server.url, { key });
  for (const pattern of patterns) await socket.subscribe(pattern, { includeMetadata: true });
  const member = joinGroup({ url: server.url, key }, { groupName: `wide-${name}`, consumerId: name });
  return { name, key, socket, member };
}

/** Makes one thing of each kind while the lookers listen. */
export async function furnish(server: TestServer): Promise<Doors["ids"]> {
  const ok = async (asked: Promise<{ status: number; body: unknown }>) => {
    const answer = await asked;
    if (answer.status >= 300) throw new Error(JSON.stringify(answer));
    return answer.body as Record<string, string>;
  };
  const { mark } = hidden.function!;
  await ok(server.rpc("SvcService", "RegisterFunction", { id: "hid-function", name: mark, triggers: [] }));
  const triggers = [{ event: "customer.named" }, { event: "hid.paid" }];
  const folds = { id: "folds", triggers, recording: true, attributes: [{ name: "note" }] };
  await ok(server.rpc("SvcService", "RegisterFunction", folds));
  await ok(server.rpc("SvcService", "RegisterFunction", { id: "answers", triggers: [] }));
  const yearly = [{ cron: "0 0 1 1 *" }];
  await ok(server.rpc("SvcService", "RegisterFunction", { id: "hid-served", triggers: yearly }));
  const served = { environment_id: "'env_default'", function_id: "'hid-served'" };
  const { store } = server.running.domain;
  await plant(store, "breakers", 1, {
    ...served,
    endpoint_url: "'https://x.test'",
    last_failure_at: "4000000000000",
  });
  await plant(store, "debounces", 1, {
    ...served,
    id: "'held'",
    fires_at: "4000000000000",
    armed_at: "4000000000000",
  });
  for (const [condition, subject] of [
    ["projection_error", "hid-projection"],
    ["endpoint_stopped", hidden.webhook!.mark],
  ])
    await plant(store, "alerts", 1, {
      ...{ environment_id: "'env_default'", id: `'alr_${condition}'`, rule: "'r'" },
      ...{ condition: `'${condition}'`, subject: `'${subject}'`, detail: `'${subject} stands'` },
    });
  await ok(server.api("/api/v1/secrets", { body: { name: "hid-secret", value: "sk" } }));
  await ok(server.api("/api/v1/kv/buckets", { body: { name: "hid-bucket" } }));
  await ok(
    server.api("/api/v1/kv/buckets/hid-bucket/keys/k", { method: "PUT", body: { value: hidden.kv!.mark } }),
  );
  await ok(server.api("/api/v1/config/hid-config", { body: { data: { note: hidden.config!.mark } } }));
  const schema = { eventName: "hid-schema.x", version: 1, schemaJson: '{"type": "object"}' };
  await ok(server.rpc("EventSchemaService", "RegisterSchema", schema));
  await ok(server.rpc("PubSubService", "CreateConsumerGroup", { name: "hid-group", pattern: "events:none" }));
  await ok(
    server.rpc("ProjectionService", "RegisterProjection", { name: "hid-projection", events: ["none"] }),
  );
  await ok(server.rpc("PubSubService", "Publish", { topic: "hid.told", data: { note: hidden.topic!.mark } }));
  await ok(
    server.rpc("WebhookService", "CreateWebhookSource", {
      ...{ name: hidden.webhook!.mark, eventPrefix: "hook" },
    }),
  );
  const serving = ["answers", "hid-served"];
  const enlisted = { function_ids: serving, max_concurrent_jobs: 1, deployment: "of-both" };
  for (const id of ["hid-worker", "open-worker"])
    await ok(server.api(`/api/v1/workers/${id}/register`, { body: enlisted }));
  const { runId: run = "" } = await ok(server.rpc("SvcService", "InvokeFunction", { functionId: "answers" }));
  const worker = pullWorker(server, "open-worker");
  const [job] = await worker.poll();
  await worker.report(job!, { status: "completed", output: { note: hidden.run!.mark } });
  return { ...(await writeEvents(server)), run };
}

/** What is said, with what base64 in it says. */
const readable = (said: string): string =>
  [
    said,
    ...(said.match(/[A-Za-z0-9+/]{12,}={0,2}/g) ?? []).map((word) => Buffer.from(word, "base64")),
  ].join();

/** Which of these kinds the doors show to the looker: `door: kind`, in order. */
export async function shownAt(
  all: Record<string, Door>,
  world: Doors,
  looker: Looker,
  kinds: readonly HiddenKind[] = Object.keys(hidden),
): Promise<string[]> {
  const shown: string[] = [];
  for (const [name, door] of Object.entries(all)) {
    const said = readable(await door(world, looker));
    for (const kind of kinds) if (said.includes(hidden[kind]!.mark)) shown.push(`${name}: ${kind}`);
  }
  return shown.sort();
}
