import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { resolve } from "node:path";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { mcpHttp } from "../../src/cli/mcp/command.ts";
import { mcpTools } from "../../src/cli/mcp/tools.ts";
import { runOnce } from "../support/one-run.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

const mainFile = resolve(import.meta.dir, "../../src/main.ts");
const token = "a-token-of-this-test";

type Content = { type: string; text: string }[];

describe.each(engines)("an MCP client on %s", (engine) => {
  let server: TestServer;
  let failedId: string;
  const closing: (() => unknown)[] = [];
  beforeAll(async () => {
    server = await startTestServer({ engine });
    const error = { message: "no such card", retryable: false };
    failedId = (await runOnce(server, "broken", { status: "failed", error })).runId;
    await server.api("/api/v1/secrets", { body: { name: "card", value: "hush-hush" } });
  }, 120_000);
  afterAll(async () => {
    for (const close of closing.toReversed()) await close();
    await server?.stop();
  });

  const asked =
    (client: Client) =>
    async (name: string, given: Record<string, unknown> = {}) => {
      const { content, isError } = await client.callTool({ name, arguments: given });
      return { isError: isError === true, text: (content as Content)[0]!.text };
    };

  test("over stdio: lists, reads, pages, and is refused what changes things", async () => {
    const client = new Client({ name: "test", version: "1" });
    const args = [mainFile, "mcp", "--server-url", server.url];
    const env = {
      PATH: process.env.PATH ?? "",
      SVC_API_KEY: server.adminKey,
      SVC_SERVER_URL: "http://127.0.0.1:1",
    };
    await client.connect(new StdioClientTransport({ command: process.execPath, args, env }));
    closing.push(() => client.close());
    const ask = asked(client);
    const { tools } = await client.listTools();
    const names = tools.map(({ name }) => name);
    expect(names).toEqual([
      "svc_get_docs",
      ...mcpTools.filter(({ writes }) => !writes).map(({ name }) => name),
    ]);
    expect(tools.every(({ annotations }) => annotations?.readOnlyHint)).toBe(true);
    expect(JSON.parse((await ask("svc_list_runs", { status: "failed" })).text).runs[0].id).toBe(failedId);
    expect((await ask("svc_get_run", { run_id: failedId })).text).toContain("no such card");
    expect((await ask("svc_list_secrets")).text).not.toContain("hush");
    expect(JSON.stringify(await ask("svc_list_environments"))).not.toContain("ifkey_");
    expect(await ask("svc_get_run", { run_id: "run_nobody" })).toEqual({
      isError: true,
      text: "not_found: run run_nobody not found",
    });
    expect((await ask("svc_resume_run", { run_id: failedId })).text).toContain("--allow-writes");
    expect((await ask("svc_get_rnu")).text).toContain("did you mean svc_get_run?");
    expect((await ask("svc_get_run", { runid: failedId })).text).toContain(
      "unknown field, did you mean run_id?",
    );
    expect(await ask("svc_get_run", {})).toEqual({ isError: true, text: "run_id: is needed" });
    expect((await ask("svc_list_runs", { env: "nowhere" })).text).toContain("no environment named nowhere");
    const page = await ask("svc_get_docs", { topic: "push-protocol" });
    expect(page.text).toContain("X-Svc-Signature");
    const document = (await ask("svc_get_docs", { topic: "openapi" })).text;
    const next = Number(/go on with offset (\d+) of \d+$/.exec(document)?.[1]);
    expect((await ask("svc_get_docs", { topic: "openapi", offset: next })).text).not.toContain(
      '"openapi":"3.1.0"',
    );
    const { resources } = await client.listResources();
    expect(resources.map(({ uri }) => uri)).toContain("svc://docs/openapi");
    const read = await client.readResource({ uri: "svc://docs/function-authoring" });
    expect((read.contents[0] as { text: string }).text).toContain("step.run");
  }, 120_000);

  test("over HTTP, allowed to write: repairs a failed run, confirms what destroys; strangers are kept out", async () => {
    const target = { url: server.url, key: server.adminKey, environment: undefined, org: undefined };
    const options = { target, allowsWrites: true, isStatic: false };
    const listening = mcpHttp(options, token, { host: "127.0.0.1", port: 0 });
    closing.push(() => listening.stop(true));
    const url = new URL(`http://127.0.0.1:${listening.port}/mcp`);
    const post = (headers: Record<string, string>) => fetch(url, { method: "POST", headers, body: "{}" });
    expect((await post({})).status).toBe(401);
    expect((await post({ authorization: `Bearer ${token}`, origin: "https://evil.test" })).status).toBe(403);
    expect((await post({ authorization: `Bearer ${token}`, host: "evil.test" })).status).toBe(403);
    const client = new Client({ name: "test", version: "1" });
    const headers = { authorization: `Bearer ${token}` };
    await client.connect(new StreamableHTTPClientTransport(url, { requestInit: { headers } }) as never);
    closing.push(() => client.close());
    const ask = asked(client);
    await server.rpc("AgentToolsService", "RegisterTool", {
      agentName: "clerk",
      callbackUrl: "https://agents.test/tools",
      tools: [{ name: "look", description: "Looks.", inputSchemaJson: '{"type":"object"}' }],
    });
    const { tools } = await client.listTools();
    expect(tools.map(({ name }) => name)).toEqual(
      expect.arrayContaining(["svc_cancel_run", expect.stringMatching(/^agent_.*look$/)]),
    );
    // Two whose names read alike have names of their own, and neither is called in the other's place.
    for (const [agentName, name] of [
      ["zz-pay.out", "refund"],
      ["zz-pay", "out_refund"],
    ])
      await server.rpc("AgentToolsService", "RegisterTool", {
        ...{ agentName, callbackUrl: "https://agents.test/tools" },
        tools: [{ name, description: `Of ${agentName}\u202e.`, inputSchemaJson: "{}" }],
      });
    const alike = (await client.listTools()).tools.filter(({ name }) => name.startsWith("agent_zz-pay"));
    expect(alike.map(({ name }) => name.replace(/_[0-9a-f]{8}$/, ""))).toEqual(
      Array(2).fill("agent_zz-pay_out_refund"),
    );
    expect(new Set(alike.map(({ name }) => name)).size).toBe(2);
    expect(alike[0]!.description).toContain("\\u202e");
    expect((await ask("agent_zz-pay_out_refund", {})).text).toContain("no agent has registered");
    expect((await ask("svc_resume_run", { run_id: failedId })).isError).toBe(false);
    expect((await ask("svc_cancel_run", { run_id: failedId })).text).toContain("confirm must be true");
    expect((await ask("svc_cancel_run", { run_id: failedId, confirm: true })).text).toContain("CANCELLED");
    expect((await ask("svc_outbox_dlq_requeue", { event_id: "evt_x" })).text).toContain("env: is needed");
    expect((await ask("svc_emit_event", { event: "said.by.agent", data: { n: 1 } })).text).toMatch(
      /evt_[\s\S]*it started no run: .* said\.by\.agent; svc_list_functions$/,
    );
    expect((await ask("svc_list_events", { limit: 5 })).text).toContain("said.by.agent");
    expect((await ask("svc_secret_set", { name: "fresh", value: "hush" })).text).not.toContain("hush");
    await ask("svc_kv_put", { bucket: "none", key: "a", value: "b" });
    const big = "x".repeat(20_000);
    for (const n of [1, 2, 3]) await ask("svc_emit_event", { event: "big", data: { n, big } });
    expect((await ask("svc_list_events", { limit: 5 })).text).toMatch(/the first \d of 5/);
  }, 120_000);
});
