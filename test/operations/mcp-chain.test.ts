import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { resolve } from "node:path";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { asTool } from "../../src/cli/mcp/next.ts";
import { mcpTools } from "../../src/cli/mcp/tools.ts";
import { type Assignment, type PullWorker, pullWorker } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const mainFile = resolve(import.meta.dir, "../../src/main.ts");
/** An answer with what comes next: a model reads all of them. */
const answerCharsMax = 4_000;

/** A client that calls a tool only where what it was told last names it. */
class Newcomer {
  readonly #client: Client;
  #said = "";

  constructor(client: Client) {
    this.#client = client;
  }

  async begin(transport: Parameters<Client["connect"]>[0]): Promise<readonly string[]> {
    await this.#client.connect(transport);
    const { tools } = await this.#client.listTools();
    this.#said = this.#client.getInstructions() ?? "";
    return tools.map(({ name }) => name);
  }

  get said(): string {
    return this.#said;
  }

  // biome-ignore lint/suspicious/noExplicitAny: answers of any tool.
  async call(name: string, given: Record<string, unknown> = {}): Promise<any> {
    expect(this.#said).toContain(name);
    const { content, isError } = await this.#client.callTool({ name, arguments: given });
    const texts = (content as { text: string }[]).map(({ text }) => text);
    expect({ name, texts, isError: isError === true }).toMatchObject({ isError: false });
    this.#said = texts.join("\n");
    expect(this.#said.length).toBeLessThan(answerCharsMax);
    return JSON.parse(texts[0]!);
  }

  close(): Promise<void> {
    return this.#client.close();
  }
}

const newcomer = () => new Newcomer(new Client({ name: "newcomer", version: "1" }));

test("each tool that an answer names is there", async () => {
  const text = await Bun.file(resolve(import.meta.dir, "../../src/cli/mcp/next.ts")).text();
  const own = ["svc_get_docs", "svc_search_docs", "svc_why"];
  const known = new Set([...own, ...mcpTools.map(({ name }) => name)]);
  expect([...new Set(text.match(/svc_[a-z_]+/g))].filter((name) => !known.has(name))).toEqual([]);
});

test("commands of why become tools, the others stay", () => {
  expect(asTool("svc resume run_1 --from-step 'it'\\''s'")).toBe(
    `svc_resume_run {"run_id":"run_1","from_step":"it's"}`,
  );
  expect(asTool("svc run steps run_1 --watch")).toBe('svc_get_run_steps {"run_id":"run_1"}');
  expect(asTool("svc run signal run_1 approve")).toBe('svc_signal_run {"run_id":"run_1","name":"approve"}');
  expect(asTool("start a worker that serves the function")).toBe("start a worker that serves the function");
});

describe.each(engines)("who knows only `orders fail since noon`, on %s", (engine) => {
  let server: TestServer;
  let worker: PullWorker;
  const newcomers: Newcomer[] = [];
  const taken = (count: number) => {
    const jobs: Assignment[] = [];
    return until(
      async () => {
        jobs.push(...(await worker.poll(count)));
        return jobs.length >= count ? jobs : undefined;
      },
      { about: `${count} jobs` },
    );
  };
  const overHttp = (search = "") => {
    const headers = { authorization: `Bearer ${server.adminKey}` };
    const url = new URL(`${server.url}/mcp${search}`);
    return new StreamableHTTPClientTransport(url, { requestInit: { headers } }) as never;
  };

  beforeAll(async () => {
    server = await startTestServer({ engine });
    await server.rpc("SvcService", "RegisterFunction", {
      id: "orders",
      triggers: [{ event: "order.placed" }],
    });
    worker = pullWorker(server, "till");
    await worker.register("orders");
    for (const orderId of ["o-1", "o-2", "o-3"])
      await server.rpc("SvcService", "Emit", { event: "order.placed", data: { orderId } });
    const error = { message: "the card was refused", retryable: false };
    for (const job of await taken(3)) await worker.report(job, { status: "failed", error });
  }, 120_000);
  afterAll(async () => {
    for (const one of newcomers) await one.close();
    await server?.stop();
  });

  test("is told what changes things, and what that takes, where it may only read", async () => {
    const person = newcomer();
    newcomers.push(person);
    expect(await person.begin(overHttp())).not.toContain("svc_resume_run");
    const { groups } = await person.call("svc_error_groups");
    await person.call("svc_why", { run_id: groups[0].sampleRunId });
    expect(person.said).toMatch(
      /only reads; svc mcp --allow-writes, or \/mcp\?allow-writes=true, offers svc_resume_run/,
    );
  }, 120_000);

  test("finds one failed run, understands it and lets it go on", async () => {
    const person = newcomer();
    newcomers.push(person);
    const names = await person.begin(overHttp("?allow-writes=true"));
    expect(names).toEqual(expect.arrayContaining(person.said.match(/svc_[a-z_]+/g)!));
    const { groups } = await person.call("svc_error_groups");
    expect(groups).toMatchObject([{ functionId: "orders", message: "the card was refused", count: "3" }]);
    const run_id = groups[0].sampleRunId;
    const why = await person.call("svc_why", { run_id });
    expect(why.because[0]).toContain("the card was refused");
    expect(why.next).toContain(`svc_resume_run {"run_id":"${run_id}"}`);
    await person.call("svc_preview_resume", { run_id });
    await person.call("svc_resume_run", { run_id });
    for (const job of await taken(1)) await worker.complete(job, "paid");
    const run = await person.call("svc_get_run", { run_id });
    expect(run).toMatchObject({ status: "RUN_STATUS_COMPLETED" });
  }, 120_000);

  test("repairs the others of the group over stdio, after a preview", async () => {
    const person = newcomer();
    newcomers.push(person);
    const env = { PATH: process.env.PATH ?? "", SVC_API_KEY: server.adminKey, SVC_SERVER_URL: server.url };
    const args = [mainFile, "mcp", "--allow-writes"];
    await person.begin(new StdioClientTransport({ command: process.execPath, args, env }));
    const { groups } = await person.call("svc_error_groups");
    const filter = { errorGroup: groups[0].id };
    expect(await person.call("svc_preview_repair", { action: "resume", filter })).toMatchObject({
      totalCount: "2",
    });
    const reason = "the bank is back";
    const { id } = await person.call("svc_start_repair", { action: "resume", filter, reason, confirm: true });
    for (const job of await taken(2)) await worker.complete(job, "paid");
    await until(
      async () => /completed/i.test((await person.call("svc_get_repair", { repair_id: id })).status),
      { about: "the repair" },
    );
    expect(await person.call("svc_list_runs", { status: "failed" })).not.toHaveProperty("runs.0");
    expect(person.said).toContain("svc_list_environments");
  }, 120_000);
});
