import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { resolve } from "node:path";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { mcpRequestsMax } from "../../src/cli/limits.ts";
import { mcpHttp } from "../../src/cli/mcp/command.ts";
import { mcpTools } from "../../src/cli/mcp/tools.ts";
import { runOnce } from "../support/one-run.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

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
    const args = [mainFile, "mcp"];
    const env = {
      PATH: process.env.PATH ?? "",
      SVC_API_KEY: server.adminKey,
      SVC_SERVER_URL: server.url,
    };
    await client.connect(new StdioClientTransport({ command: process.execPath, args, env }));
    closing.push(() => client.close());
    const ask = asked(client);
    const { tools } = await client.listTools();
    const names = tools.map(({ name }) => name);
    expect(names).toEqual([
      ...["svc_get_docs", "svc_search_docs", "svc_why"],
      ...mcpTools.filter(({ writes }) => !writes).map(({ name }) => name),
    ]);
    expect(tools.every(({ annotations }) => annotations?.readOnlyHint)).toBe(true);
    const lists = tools.find(({ name }) => name === "svc_list_runs")!.inputSchema.properties!;
    const { items } = lists.statuses as { items: { enum: string[] } };
    for (const word of [
      "failed",
      "sleeping",
      "waiting_for_event",
      "waiting_for_child",
      "held",
      "deployment_gone",
    ])
      expect(items.enum).toContain(word);
    expect(await ask("svc_list_runs", { statuses: items.enum })).toMatchObject({ isError: false });
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
    const found = JSON.parse((await ask("svc_search_docs", { query: "dedupe events" })).text);
    expect(found[0]).toMatchObject({ topic: "events" });
    expect((await ask("svc_get_docs", { topic: "events" })).text).toContain("## ");
    expect((await ask("svc_get_docs", { topic: "nothing" })).text).toContain("topic: must be one of openapi");
    const { prompts } = await client.listPrompts();
    expect(prompts.map(({ name }) => name)).toEqual(["find_out_why", "repair"]);
    const prompt = await client.getPrompt({ name: "find_out_why", arguments: { about: "orders fail" } });
    expect(JSON.stringify(prompt.messages)).toContain("What is known: orders fail");
    expect(client.getPrompt({ name: "sing" })).rejects.toThrow("there is no prompt sing");
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
    const nap = { step_id: "a:nap:0", type: "sleep", until: new Date(Date.now() + 600_000).toISOString() };
    const { runId } = await runOnce(server, "approval", { status: "yielded", yield: nap });
    expect((await ask("svc_signal_run", { run_id: runId })).text).toBe("name: is needed");
    const sent = { run_id: runId, name: "approve", data: { by: "Ada" } };
    expect((await ask("svc_signal_run", sent)).text).toContain("kept");
    expect((await ask("svc_run_signals", { run_id: runId })).text).toMatch(/approve[\s\S]*kept[\s\S]*Ada/);
    await ask("svc_kv_put", { bucket: "none", key: "a", value: "b" });
    const big = "x".repeat(20_000);
    for (const n of [1, 2, 3]) await ask("svc_emit_event", { event: "big", data: { n, big } });
    expect((await ask("svc_list_events", { limit: 5 })).text).toMatch(/cut_?values/i);
    expect((await ask("svc_list_events", { limit: 5, max_value_bytes: 0 })).text).toMatch(
      /the first \d of 5/,
    );
  }, 120_000);

  test("at the server's own /mcp: as its key may, from a group of failures to their repair", async () => {
    const connectAs = async (key: string, search = "") => {
      const client = new Client({ name: "test", version: "1" });
      const headers = { authorization: `Bearer ${key}` };
      const url = new URL(`${server.url}/mcp${search}`);
      await client.connect(new StreamableHTTPClientTransport(url, { requestInit: { headers } }) as never);
      closing.push(() => client.close());
      return { client, ask: asked(client) };
    };
    const stranger = await server.api("/mcp", { key: "", body: {} });
    expect(stranger.status).toBe(401);
    expect((await server.api("/mcp", { key: "ifkey_nobody", body: {} })).status).toBe(401);
    expect((await server.api("/mcp", { body: { tool: "x".repeat(1024 * 1024) } })).status).toBe(413);
    // Each message of a batch is a call that the node makes.
    const batch = (length: number) =>
      server.api("/mcp", {
        body: Array.from({ length }, (_, id) => ({ jsonrpc: "2.0", id, method: "tools/list" })),
        headers: { accept: "application/json, text/event-stream" },
      });
    expect((await batch(mcpRequestsMax)).body).toHaveLength(mcpRequestsMax);
    expect(await batch(mcpRequestsMax + 1)).toMatchObject({ status: 429, body: { error: "LIMIT_EXCEEDED" } });
    expect((await batch(mcpRequestsMax)).status).toBe(200);
    const error = { message: "the card was refused", retryable: false };
    const { runId } = await runOnce(server, "charge", { status: "failed", error });
    const reader = await connectAs(server.adminKey);
    expect((await reader.ask("svc_resume_run", { run_id: runId })).text).toContain("--allow-writes");
    const { groups } = JSON.parse((await reader.ask("svc_error_groups")).text);
    expect(JSON.stringify(groups)).toContain("the card was refused");
    const why = JSON.parse((await reader.ask("svc_why", { run_id: runId })).text);
    expect(why).toMatchObject({ status: "failed" });
    expect(why.because[0]).toContain("the card was refused");
    const repair = { action: "resume", filter: { functionId: "charge" } };
    const preview = await reader.ask("svc_preview_repair", repair);
    expect({ ...preview, text: JSON.parse(preview.text) }).toMatchObject({
      isError: false,
      text: { totalCount: "1" },
    });
    const writer = await connectAs(server.adminKey, "?allow-writes=true");
    const started = { ...repair, reason: "the card is fine now" };
    expect((await writer.ask("svc_start_repair", started)).text).toContain("confirm must be true");
    const { id } = JSON.parse((await writer.ask("svc_start_repair", { ...started, confirm: true })).text);
    await until(
      async () =>
        (await writer.ask("svc_get_repair", { repair_id: id })).text.toLowerCase().includes("completed"),
      {
        about: "the repair",
      },
    );
    // A key that may only read is refused by the server, whatever it asked for.
    const { body } = await server.api("/api/v1/apikeys", {
      body: { name: "look", role_ids: ["role_viewer"] },
    });
    const viewer = await connectAs(body.key, "?allow-writes=true");
    expect((await viewer.ask("svc_list_runs", {})).isError).toBe(false);
    expect((await viewer.ask("svc_resume_run", { run_id: runId })).text).toContain("permission_denied");
  }, 120_000);
});
