import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { rawCommands } from "../../src/cli/raw-commands.ts";
import { type Cli, makeCli } from "../support/cli.ts";
import { docsCommands } from "../support/docs-blocks.ts";
import { pullWorker, stepIdOf } from "../support/pull-worker.ts";
import { startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

/** Lines that begin something that stays, and the file that starts it. */
const elsewhere: Readonly<Record<string, string>> = {
  "svc init": "operations/cli-process",
  "svc dev": "operations/cli-process",
  "svc rehearse": "operations/rehearsal",
  "svc run move": "operations/pins",
};

/** Lines that go on until ^C. */
const following = /^svc (tail|subscribe|kv watch) /;

/** Lines for users of the platform. */
const ofPlatform = /^svc capacity /;

/** Ids as pages show them: `run_01kf3m8q4v7x2n9t5c6b1d0e8g`. */
const shownId = /\b([a-z]+)_01kf3m8q4v7x2n9t5c6b1d0e8g\b/;

/** Words as a shell splits them. */
const wordsOf = (line: string): string[] =>
  [...line.matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map(
    ([, single, double, bare]) => single ?? double ?? bare!,
  );

describe("the lines of svc in the documentation", () => {
  let server: TestServer;
  let cli: Cli;
  beforeAll(async () => {
    server = await startTestServer({ engine: "libsql", settings: { strictInput: true } });
    cli = makeCli({ SVC_SERVER_URL: server.url, SVC_API_KEY: server.adminKey }, { rawCommands });
  }, 120_000);
  afterAll(async () => {
    cli?.remove();
    await server?.stop();
  });

  // biome-ignore lint/suspicious/noExplicitAny: answers as they come
  async function ask(service: string, method: string, body: object): Promise<any> {
    const answer = await server.rpc(service, method, body);
    expect([method, answer.status, answer.body]).toEqual([method, 200, expect.anything()]);
    return answer.body;
  }

  /** What the pages name by words of a reader's own. */
  async function furnish(): Promise<void> {
    await ask("SvcService", "RegisterFunction", { id: "charge", triggers: [{ event: "order.placed" }] });
    writeFileSync(join(cli.folder, "client-secret.txt"), "what the provider gave\n");
    await server.api("/api/v1/kv/buckets", { body: { name: "carts" } });
    await server.api("/api/v1/kv/buckets/carts/keys/ada", { method: "PUT", body: "one" });
    const handler = "order.placed=INSERT INTO proj_orders (id) VALUES (:event_id)";
    const table = ["--sql", "CREATE TABLE proj_orders (id text PRIMARY KEY)"];
    expect(
      await cli.run(["projection", "create", "orders", ...table, "--event-handler", handler]),
    ).toMatchObject({ code: 0, err: "" });
  }

  const started = async () => (await ask("SvcService", "InvokeFunction", { functionId: "charge" })).runId;

  /** A run that failed behind its step `charge`. */
  async function failedRun(): Promise<string> {
    const runId = await started();
    const worker = pullWorker(server, "w-charge");
    await worker.register("charge");
    const job = await until(async () => (await worker.poll(10)).find(({ run_id }) => run_id === runId), {
      about: "the job",
    });
    const step = { id: stepIdOf(job, "charge"), name: "charge", type: "invoke" };
    const steps = [{ ...step, status: "completed", output: 1 }];
    expect((await worker.report(job, { status: "progress", steps, step_offset: 0 })).status).toBe(200);
    const error = { message: "no such card", code: "CARD", retryable: false };
    expect((await worker.report(job, { status: "failed", error })).status).toBe(200);
    return runId;
  }

  /** The session of a user of the platform. */
  async function platformSession(): Promise<string> {
    const root = { email: "root@svc.test", password: "long-enough-1" };
    await server.api("/api/v1/platform/bootstrap", { body: { ...root, name: "Root" } });
    return (await server.api("/api/v1/platform/auth/login", { body: root })).body.token;
  }

  let made = 0;

  async function source(): Promise<{ id: string; ingestToken: string }> {
    const name = `source-${++made}`;
    return ask("WebhookService", "CreateWebhookSource", { name, eventPrefix: name });
  }

  async function delivery(): Promise<string> {
    const { id, ingestToken } = await source();
    await server.api(`/api/v1/webhooks/${id}?token=${ingestToken}`, { body: { n: 1 } });
    const { out } = await cli.run(["webhook", "deliveries", id]);
    return /whd_\w+/.exec(out)?.[0] ?? out;
  }

  async function endpoint(): Promise<string> {
    const target = { name: `out-${++made}`, url: "https://example.test/", pattern: "never.*" };
    const { id } = await ask("WebhookEndpointService", "CreateWebhookEndpoint", target);
    await ask("WebhookEndpointService", "PauseWebhookEndpoint", { id });
    return id;
  }

  /** A thing of its own for each line: a run that was resumed is no failed one any more. */
  const makers: Readonly<Record<string, (line: string) => Promise<string>>> = {
    run: (line) => (/^svc (cancel|run signal) /.test(line) ? started() : failedRun()),
    rep: async () => {
      const filter = { functionId: "charge" };
      return (await ask("RepairService", "StartRepair", { action: "resume", filter })).id;
    },
    evt: async () => (await ask("SvcService", "Emit", { event: "order.placed" })).eventId,
    whs: async () => (await source()).id,
    whd: delivery,
    whe: endpoint,
  };

  async function withIds(line: string): Promise<string> {
    const shown = shownId.exec(line);
    if (!shown) return line;
    const id = await makers[shown[1]!]!(line);
    return line.replaceAll(shown[0], id);
  }

  /** As a person types it, who says yes to what is asked and ends what goes on by ^C. */
  async function typed(line: string, session: string) {
    const words = wordsOf(line).slice(1);
    const ran = cli.run(words, {
      types: ["yes"],
      ...(ofPlatform.test(line) && { environment: { SVC_API_KEY: session } }),
      ...(following.test(line) && { onOut: (_text: string, stop: () => void) => stop() }),
    });
    if (!following.test(line)) return ran;
    let isOver = false;
    void ran.then(() => {
      isOver = true;
    });
    const hasEnded = async () => {
      await ask("SvcService", "Emit", { event: "order.placed" });
      return isOver;
    };
    await until(hasEnded, { about: line });
    return ran;
  }

  const isRebuilt = async () =>
    /running/.test((await cli.run(["projection", "rebuild", "status", "orders", "--json"])).out) === false;

  test("do what they say, at a server that refuses fields it does not know", async () => {
    await furnish();
    const session = await platformSession();
    const troubles: string[] = [];
    for (const { page, line } of docsCommands) {
      if (Object.keys(elsewhere).some((words) => line.startsWith(words))) continue;
      if (line.startsWith("svc projection watch")) await until(isRebuilt, { about: "the rebuild" });
      const { code, err } = await typed(await withIds(line), session);
      if (code !== 0) troubles.push(`${page}: ${line}: ${code} ${err}`);
    }
    expect(troubles).toEqual([]);
  }, 120_000);
});
