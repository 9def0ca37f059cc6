import { sql } from "../../src/kit/sql.ts";
import { defineTools, serveTools } from "../../src/sdk/index.ts";
import { runOnce } from "./one-run.ts";
import { projectionCaller } from "./projections.ts";
import { pullWorker, stepIdOf } from "./pull-worker.ts";
import type { TestServer } from "./server.ts";
import { until } from "./until.ts";

/** More runs than a repair reaches while a few command lines are typed. */
const repairedRuns = 1_000;

/** What the lines of a pass need and no command makes, under names of the pass. */
export async function furnishCli(server: TestServer, p: string) {
  const rpc = rpcOf(server);
  const ended = await runOnce(server, `told-${p}`, { status: "completed", output: { n: 1 } });
  const error = { message: "no such card", code: "CARD", retryable: false };
  const broken = await runOnce(server, `broken-${p}`, { status: "failed", error });
  await rpc("RegisterFunction", { id: `lonely-${p}` });
  const invoked = await rpc("InvokeFunction", { functionId: `lonely-${p}` });
  await server.api("/api/v1/secrets", { body: { name: `hush-${p}`, value: "hush" } });
  await server.api("/api/v1/kv/buckets", { body: { name: `kept-${p}` } });
  await server.api(`/api/v1/kv/buckets/kept-${p}/keys/a`, { method: "PUT", body: "one" });
  const entity = { entityId: `shot-${p}`, entityType: "order" };
  await rpc("EntityStreamService/AppendEvent", { ...entity, eventName: "placed", data: { n: 1 } });
  await rpc("EntityStreamService/CreateSnapshot", { ...entity, entityVersion: 1, state: { n: 1 } });
  const source = { name: `open-${p}`, eventPrefix: `open-${p}` };
  const { id: open, ingestToken: token } = await rpc("WebhookService/CreateWebhookSource", source);
  await foldedOnce(server, p);
  await manyRuns(rpc, p);
  const { names, stop } = await called(server, rpc, p);
  return {
    names: {
      ...{ p, run: ended.runId, failed: broken.runId, waiting: invoked.runId as string, open, token },
      ...names,
      ...(await runAsleep(server, p)),
      ...(await deadLetters(server, p)),
      linked: await linkedUser(server, p),
    },
    stop,
  };
}

// biome-ignore lint/suspicious/noExplicitAny: answers as they come
type Rpc = (method: string, body: object) => Promise<any>;

/** `rpc("Emit", …)`, and `rpc("WebhookService/…", …)` of other services; throws what is refused. */
const rpcOf =
  (server: TestServer): Rpc =>
  async (path, body) => {
    const [method = "", service = "SvcService"] = path.split("/").reverse();
    const answer = await server.rpc(service, method, body);
    if (answer.status !== 200) throw new Error(`${path}: ${JSON.stringify(answer.body)}`);
    return answer.body;
  };

/** A run with a finished step that sleeps for an hour. */
async function runAsleep(server: TestServer, p: string) {
  const name = `asleep-${p}`;
  await server.rpc("SvcService", "RegisterFunction", { id: name });
  const worker = pullWorker(server, `w-${name}`);
  await worker.register(name);
  await server.rpc("SvcService", "InvokeFunction", { functionId: name });
  const job = await until(async () => (await worker.poll())[0], { about: "the job" });
  const step = { id: stepIdOf(job, "one"), name: "one", type: "invoke", status: "completed", output: 1 };
  await worker.report(job, { status: "progress", steps: [step], step_offset: 0 });
  await worker.leave(job, "rest", { type: "sleep", until: new Date(Date.now() + 3_600_000).toISOString() });
  return { asleep: job.run_id, step: step.id };
}

/** A user who may sign in at a provider too. */
async function linkedUser(server: TestServer, p: string): Promise<string> {
  const user = { email: `linked-${p}@example.test`, password: "correct horse battery staple" };
  const { id } = (await server.api("/api/v1/users", { body: user })).body;
  await server.running.domain.store.write((session) =>
    session.run(sql`INSERT INTO identities (org_id, issuer, subject, user_id, created_at)
      VALUES ('org_default', ${`https://${p}.example`}, 'linked', ${id}, 1)`),
  );
  return id;
}

/** A managed projection with a state of one partition, which no runner folds further. */
async function foldedOnce(server: TestServer, p: string): Promise<void> {
  const { ok, emit, save, poll } = projectionCaller(server);
  const name = `folded_${p}`;
  await ok("RegisterProjection", { name, events: [`folded-${p}.happened`] });
  const { seq } = await emit(`folded-${p}.happened`);
  await poll(name);
  await save(name, seq, { count: 1 });
}

async function manyRuns(rpc: Rpc, p: string): Promise<void> {
  await rpc("RegisterFunction", { id: `many-${p}`, triggers: [{ event: `many-${p}.asked` }] });
  const events = Array.from({ length: 100 }, () => ({ event: `many-${p}.asked` }));
  for (let sent = 0; sent < repairedRuns; sent += events.length) await rpc("TriggerBatch", { events });
}

/** Two messages that the bus refuses, for their length. */
async function deadLetters(server: TestServer, p: string) {
  const { store } = server.running.domain;
  const cancelled = async () => {
    const { body } = await server.rpc("SvcService", "InvokeFunction", { functionId: `lonely-${p}` });
    await server.rpc("SvcService", "CancelRun", { id: body.runId, reason: "🙂".repeat(1_024) });
    return `cancel-${body.runId}`;
  };
  const [requeued, discarded] = [await cancelled(), await cancelled()];
  const areDead = async () => {
    await store.write((session) => session.run(sql`UPDATE outbox SET due_at = 0`));
    await server.running.tick("outbox.relay");
    const dead = await store.all<{ event_id: string }>(
      sql`SELECT event_id FROM outbox WHERE dead_at IS NOT NULL`,
    );
    return [requeued, discarded].every((id) => dead.some(({ event_id }) => event_id === id));
  };
  await until(areDead, { about: "two dead letters", deadlineMs: 20_000, everyMs: 5 });
  return { requeued, discarded };
}

/** An endpoint with two dead letters that answers by now, and a tool. */
async function called(server: TestServer, rpc: Rpc, p: string) {
  const tools = defineTools(`desk-${p}`, { echo: { run: (input: unknown) => ({ said: input }) } });
  const serveTool = serveTools({ url: server.url, apiKey: server.adminKey, tools });
  let refuses = true;
  const receiver = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: (request) =>
      /^.(hooks|alerts)$/.test(new URL(request.url).pathname)
        ? new Response(null, { status: refuses ? 422 : 204 })
        : serveTool(request),
  });
  const url = `http://127.0.0.1:${receiver.port}`;
  await serveTool.register(url);
  const target = { name: `refused-${p}`, url: `${url}/hooks`, pattern: `refused-${p}.*` };
  const { id } = await rpc("WebhookEndpointService/CreateWebhookEndpoint", target);
  const eventIds: string[] = [];
  for (let sent = 0; sent < 2; sent++) {
    const { eventId } = await rpc("Emit", { event: `refused-${p}.sent` });
    const isFailing = async () =>
      (await rpc("WebhookEndpointService/GetWebhookEndpoint", { id })).failingEventId === eventId;
    await until(isFailing, { about: `${eventId} to fail`, deadlineMs: 20_000 });
    await rpc("WebhookEndpointService/ResumeWebhookEndpoint", { id, skipEventId: eventId });
    eventIds.push(eventId);
  }
  refuses = false;
  const targets = [{ type: "webhook", url: `${url}/alerts` }];
  const rule = { name: `lost-${p}`, condition: "dead_letter", targets };
  await rpc("AlertService/PutAlertRule", rule);
  const firstAlert = async () => (await rpc("AlertService/ListAlerts", { rule: rule.name })).alerts?.[0];
  const { id: alert } = await until(firstAlert, { about: "an alert", deadlineMs: 20_000 });
  const names = { refusedAt: id, resent: eventIds[0]!, dropped: eventIds[1]!, alert };
  return { names, stop: () => receiver.stop(true) };
}
