import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { AgentToolsService } from "../../src/gen/svc/v1/agent_tools_pb.ts";
import { sql } from "../../src/kit/sql.ts";
import { type Answers, endless, isSignedBy, openAgents } from "../support/agents.ts";
import { freePort } from "../support/process.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const waiting = { deadlineMs: 20_000 };
const orderSchema = JSON.stringify({
  type: "object",
  properties: { id: { type: "string" }, count: { type: "integer", minimum: 1 } },
  required: ["id"],
});

describe.each(engines)("tools of agents on %s", (engine) => {
  let server: TestServer;
  const agents = openAgents();
  beforeAll(async () => {
    server = await startTestServer({
      engine,
      settings: { pushAllowPrivate: ["127.0.0.0/8"], grpcPort: await freePort() },
    });
  }, 120_000);
  afterAll(async () => {
    await server.stop();
    agents.stop();
  });

  const call = (method: string, body: object, options = {}) =>
    server.rpc("AgentToolsService", method, body, options);
  const ok = async (method: string, body: object, options = {}) => {
    const answer = await call(method, body, options);
    expect([method, answer.status, answer.body]).toEqual([method, 200, expect.anything()]);
    return answer.body;
  };
  let number = 0;
  /** A name that no other test has. */
  const fresh = (answer?: Answers) => {
    const name = `agent${++number}`;
    if (answer) agents.answer(name, answer);
    return name;
  };
  const register = (agentName: string, tools: object[], more: object = {}) =>
    ok("RegisterTool", { agentName, callbackUrl: agents.url(agentName), tools, ...more });
  const invoke = (toolName: string, input: unknown = {}, options = {}) =>
    call("InvokeTool", { toolName, ...(isObject(input) ? { input } : { inputValue: input }) }, options);
  const isObject = (value: unknown) => typeof value === "object" && value !== null && !Array.isArray(value);
  const outcome = async (toolName: string, input: unknown = {}) => {
    const { status, body } = await invoke(toolName, input);
    expect([toolName, status, body]).toEqual([toolName, 200, expect.anything()]);
    return body;
  };
  const listed = async (options = {}) => {
    const tools: { qualifiedName: string }[] = [];
    let cursor = "";
    do {
      const page = await ok("ListTools", { cursor }, options);
      tools.push(...(page.tools ?? []));
      cursor = page.nextCursor ?? "";
    } while (cursor !== "");
    return tools;
  };
  const namesListed = async (agent: string, options = {}) =>
    (await listed(options)).map((one) => one.qualifiedName).filter((name) => name.startsWith(`${agent}.`));
  /** The key of a caller with a role of its own, and what policies deny it. */
  async function caller(base: string, ...policies: { actions: string; resources: string }[]) {
    const made = `role-${engine}-${++number}`;
    const role = await server.api("/api/v1/roles", { body: { name: made, base } });
    for (const policy of policies) {
      const { body } = await server.api("/api/v1/policies", {
        body: { name: `${made}-${++number}`, effect: "deny", ...policy },
      });
      await server.api(`/api/v1/roles/${role.body.id}/policies`, { body: { policy_id: body.id } });
    }
    const key = await server.api("/api/v1/apikeys", { body: { name: made, role_ids: [role.body.id] } });
    return { key: key.body.key as string };
  }
  const denied = { status: 403 };

  test("a registered tool is called back, signed, with its input; objects and other values come back", async () => {
    const agent = fresh(({ body }) => Response.json({ output: body.input }));
    const made = await register(agent, [
      { name: "order", description: "Orders.", inputSchemaJson: orderSchema, requiredScopes: ["runs:read"] },
      { name: "echo" },
    ]);
    expect(made.hmacSecret).toMatch(/^[0-9a-f]{64}$/);
    expect(made.registeredToolNames).toEqual([`${agent}.order`, `${agent}.echo`]);
    expect(Math.abs(Date.parse(made.registeredAt) - Date.now())).toBeLessThan(60_000);
    expect(await outcome(`${agent}.order`, { id: "o1", count: 2 })).toEqual({
      output: { id: "o1", count: 2 },
    });
    expect(await outcome(`${agent}.echo`, [1, "two", null])).toEqual({ outputValue: [1, "two", null] });
    expect((await call("InvokeTool", { toolName: `${agent}.echo` })).body).toEqual({ output: {} });
    const [first] = agents.of(agent);
    expect(first!.text).toBe(`{"qualified_name":"${agent}.order","input":{"id":"o1","count":2}}`);
    expect(agents.of(agent).every((one) => isSignedBy(made.hmacSecret, one))).toBe(true);
    expect((await listed()).filter(({ qualifiedName }) => qualifiedName.startsWith(`${agent}.`))).toEqual([
      { qualifiedName: `${agent}.echo` },
      {
        ...{ qualifiedName: `${agent}.order`, description: "Orders.", inputSchemaJson: orderSchema },
        requiredScopes: ["runs:read"],
      },
    ] as never);
  });

  test("binary messages and gRPC say the same as JSON", async () => {
    const agent = fresh(({ body }) => Response.json({ output: body.input }));
    const transports = [
      createConnectTransport({ baseUrl: server.url, httpVersion: "1.1", useBinaryFormat: true }),
      createGrpcTransport({ baseUrl: server.running.grpcUrl! }),
    ];
    for (const transport of transports) {
      const tools = createClient(AgentToolsService, transport);
      const headers = { authorization: `Bearer ${server.adminKey}` };
      const given = { name: "t", inputSchemaJson: orderSchema, timeoutMs: 5_000 };
      const callbackUrl = agents.url(agent);
      const made = await tools.registerTool({ agentName: agent, callbackUrl, tools: [given] }, { headers });
      expect(made.hmacSecret).toHaveLength(64);
      const toolName = `${agent}.t`;
      expect(await tools.invokeTool({ toolName, input: { id: "o1" } }, { headers })).toMatchObject({
        output: { id: "o1" },
      });
      const refused = await tools
        .invokeTool({ toolName, input: {} }, { headers })
        .then(() => undefined, ConnectError.from);
      expect([refused?.code, refused?.rawMessage]).toEqual([
        Code.InvalidArgument,
        `input: must have the property "id" (required, the input schema of ${toolName})`,
      ]);
      const found = await tools.listTools({}, { headers });
      expect(found.tools.map(({ qualifiedName }) => qualifiedName)).toContain(toolName);
      expect(await tools.unregisterTool({ agentName: agent }, { headers })).toMatchObject({
        removedCount: 1,
      });
    }
  });

  test("input is checked before the call", async () => {
    const agent = fresh(() => Response.json({ output: {} }));
    await register(agent, [{ name: "order", inputSchemaJson: orderSchema }]);
    const refused = await invoke(`${agent}.order`, { id: "o1", count: 0 });
    expect(refused).toMatchObject({ status: 400, body: { code: "invalid_argument" } });
    expect(refused.body.message).toMatch(
      /^input: .*count.* \(minimum, the input schema of agent\d+\.order\)$/,
    );
    expect((await invoke(`${agent}.order`, "text")).status).toBe(400);
    expect((await invoke(`${agent}.order`, { id: "x".repeat(1024 * 1024) })).body.message).toBe(
      "input: at most 1048576 bytes of JSON",
    );
    for (const unknown of [`${agent}.other`, agent, "no.such"])
      expect(await invoke(unknown)).toMatchObject({ status: 404, body: { code: "not_found" } });
    expect((await invoke("x".repeat(300))).status).toBe(400);
    expect(agents.of(agent)).toHaveLength(0);
  });

  test("registering again replaces tools and secret; unregistering ends them", async () => {
    const agent = fresh(() => Response.json({ output: { n: 1 } }));
    const first = await register(agent, [{ name: "a" }, { name: "b" }]);
    // Some clients register the URL with the path that calls go to.
    const second = await register(agent, [{ name: "b" }, { name: "c" }], {
      callbackUrl: `${agents.url(agent)}/svc/agent-tools/dispatch//`,
    });
    expect(second.hmacSecret).not.toBe(first.hmacSecret);
    expect(await namesListed(agent)).toEqual([`${agent}.b`, `${agent}.c`]);
    expect((await invoke(`${agent}.a`)).status).toBe(404);
    await outcome(`${agent}.b`);
    expect(isSignedBy(second.hmacSecret, agents.of(agent)[0]!)).toBe(true);
    const other = await call("RegisterTool", {
      ...{ agentName: `${agent}.x`, callbackUrl: agents.url(agent), tools: [{ name: "y" }] },
    });
    expect(other.status).toBe(200);
    const taken = { agentName: agent, callbackUrl: agents.url(agent), tools: [{ name: "x.y" }] };
    expect(await call("RegisterTool", taken)).toMatchObject({
      ...{ status: 409, body: { message: `tools: ${agent}.x.y is a tool of agent ${agent}.x` } },
    });
    expect(await namesListed(agent)).toContain(`${agent}.c`);
    expect(await ok("UnregisterTool", { agentName: agent })).toEqual({ removedCount: 2 });
    expect((await invoke(`${agent}.b`)).status).toBe(404);
    expect(await ok("UnregisterTool", { agentName: agent })).toEqual({});
  });

  test("what an agent answers wrong is an error, and opens the breaker", async () => {
    const agent = fresh();
    await register(agent, [{ name: "t", timeoutMs: 2_000 }, { name: "slow" }]);
    const deep = `${"[".repeat(200)}${"]".repeat(200)}`;
    const cases: [Answers, RegExp, string?][] = [
      [() => Response.json({ error: { code: "NO_STOCK", message: "none left" } }), /^none left$/, "NO_STOCK"],
      [() => Response.json({ error: { message: "m".repeat(9_000) } }), /^m{2000}$/, "HANDLER_ERROR"],
      [() => Response.json({ error: "broken" }), /gave no reason/, "HANDLER_ERROR"],
      [
        () => Response.json({ error: { code: "SIGNATURE_MISMATCH", message: "no" } }, { status: 401 }),
        ...([/^no$/, "SIGNATURE_MISMATCH"] as const),
      ],
      [() => new Promise<Response>(() => {}), /no answer within 2000 ms/],
      [() => Response.redirect("http://169.254.169.254/latest/meta-data"), /the agent answered 302/],
      [endless, /larger than 1048576 bytes/],
      [() => new Response("<html>"), /not valid JSON/],
      [() => new Response(`{"output":${deep}}`), /nested deeper/],
    ];
    for (const [answer, message, code = "CALLBACK_FAILED"] of cases) {
      agents.answer(agent, answer);
      const { error } = await outcome(`${agent}.t`);
      expect(error).toEqual({ code, message: expect.stringMatching(message) });
    }
    // Five failures in a row have opened the breaker.
    agents.answer(agent, () => Response.json({ output: {} }));
    const before = agents.of(agent).length;
    expect((await outcome(`${agent}.slow`)).error).toMatchObject({ code: "CIRCUIT_OPEN" });
    expect(agents.of(agent)).toHaveLength(before);
    const found = (await server.api("/api/v1/circuit-breakers")).body.find(
      (one: { function_id: string }) => one.function_id === `agent:${agent}`,
    );
    expect(found).toMatchObject({ state: "open", endpoint: agents.url(agent) });
    const key = Buffer.from(found.key).toString("base64url");
    expect((await server.api(`/api/v1/circuit-breakers/${key}/reset`, { method: "POST" })).status).toBe(200);
    expect(await outcome(`${agent}.t`)).toEqual({ output: {} });
  });

  test("private addresses are not called, however they are written", async () => {
    const agent = fresh();
    for (const url of [
      "http://169.254.169.254/latest",
      "http://[::ffff:169.254.169.254]",
      "http://10.0.0.1",
    ]) {
      await register(agent, [{ name: "t" }], { callbackUrl: url });
      expect((await outcome(`${agent}.t`)).error).toEqual({
        code: "CALLBACK_FAILED",
        message: "the host's address is in a network that must not be called (see SVC_PUSH_ALLOW_PRIVATE)",
      });
    }
  });

  test("what cannot be registered is refused by field and rule", async () => {
    const agent = fresh();
    const base = { agentName: agent, callbackUrl: "https://agent.example.test", tools: [{ name: "t" }] };
    const withTool = (tool: object) => ({ ...base, tools: [{ name: "t", ...tool }] });
    const withSchema = (schema: unknown) =>
      withTool({ inputSchemaJson: typeof schema === "string" ? schema : JSON.stringify(schema) });
    const loop = { $ref: "#/$defs/a", $defs: { a: { $ref: "#/$defs/b" }, b: { $ref: "#/$defs/a" } } };
    const bad: [object, RegExp][] = [
      [{ ...base, agentName: "" }, /^agentName: must not be empty/],
      [{ ...base, agentName: "a b" }, /^agentName: must not contain whitespace/],
      [{ ...base, agentName: "a*" }, /^agentName: .*\*/],
      [{ ...base, agentName: "a..b" }, /^agentName: .*dot/],
      [{ ...base, agentName: "x".repeat(101) }, /^agentName: at most 100 bytes/],
      [{ ...base, callbackUrl: "ftp://x" }, /^callbackUrl: must be an absolute http/],
      [{ ...base, callbackUrl: "https://u:p@x.test" }, /^callbackUrl: must not contain credentials/],
      [{ ...base, callbackUrl: "https://x.test/?a=1" }, /^callbackUrl: must not have a query/],
      [{ ...base, callbackUrl: `https://x.test/${"x".repeat(1_100)}` }, /^callbackUrl: at most 1024 bytes/],
      [{ ...base, tools: [] }, /^tools: must not be empty/],
      [{ ...base, tools: [{ name: "t" }, { name: "t" }] }, /^tools\[1\]\.name: is the name of an earlier/],
      [withTool({ name: "" }), /^tools\[0\]\.name: must not be empty/],
      [withTool({ name: "x".repeat(101) }), /^tools\[0\]\.name: at most 100 bytes/],
      [withTool({ description: "x".repeat(5_000) }), /^tools\[0\]\.description: at most 4096 bytes/],
      [withTool({ requiredScopes: ["runs:fly"] }), /^tools\[0\]\.requiredScopes\[0\]: must be an action/],
      [withTool({ requiredScopes: ["platform:tenants:manage"] }), /requiredScopes\[0\]: must be an action/],
      [withTool({ timeoutMs: 300_001 }), /^tools\[0\]\.timeoutMs: must be from 0 to 300000/],
      [withSchema("{"), /^tools\[0\]\.inputSchemaJson: /],
      [withSchema({ $ref: "https://evil.test/schema.json" }), /^tools\[0\]\.inputSchemaJson: /],
      [withSchema({ $ref: "file:///etc/passwd" }), /^tools\[0\]\.inputSchemaJson: /],
      [withSchema(loop), /^tools\[0\]\.inputSchemaJson: .*circle/],
      [withSchema({ title: "x".repeat(1024 * 1024) }), /^tools\[0\]\.inputSchemaJson: at most 65536 bytes/],
      [withSchema({ pattern: "(a+)+(?=b)" }), /^tools\[0\]\.inputSchemaJson: /],
    ];
    for (const [body, message] of bad) {
      const answer = await call("RegisterTool", body);
      expect(answer).toMatchObject({ status: 400, body: { code: "invalid_argument" } });
      expect(answer.body.message).toMatch(message);
    }
    expect(await namesListed(agent)).toEqual([]);
    const many = Array.from({ length: 101 }, (_, n) => ({ name: `t${n}` }));
    expect(await call("RegisterTool", { ...base, tools: many })).toMatchObject({
      ...{ status: 429, body: { code: "resource_exhausted" } },
    });
    // A pattern that other engines never finish, and a schema that holds itself: both are bounded.
    const tree = { type: "object", properties: { next: { $ref: "#" }, a: { pattern: "^(a+)+$" } } };
    await ok("RegisterTool", { ...withSchema(tree), callbackUrl: agents.url(agent) });
    const input = { a: `${"a".repeat(50_000)}!`, next: {} };
    expect((await invoke(`${agent}.t`, input)).status).toBe(400);
    const forks = Array.from({ length: 40 }, (_, n) => {
      const next = { $ref: `#/$defs/f${n + 1}` };
      return [`f${n}`, { anyOf: [next, next] }] as const;
    });
    const $defs = { ...Object.fromEntries(forks), f40: false };
    await ok("RegisterTool", { ...withSchema({ $defs, $ref: "#/$defs/f0" }) });
    expect((await invoke(`${agent}.t`)).body.message).toMatch(/^input: the check takes more than \d+ steps/);
  });

  test("an environment holds so many tools, and lists them in pages", async () => {
    const made = await server.api("/api/v1/environments", { body: { name: `full-${engine}` } });
    const own = await server.api("/api/v1/apikeys", { body: { name: "full", env_id: made.body.id } });
    const elsewhere = { key: own.body.key as string };
    const answers: number[] = [];
    for (let nth = 0; nth < 11; nth++) {
      const tools = Array.from({ length: 100 }, (_, n) => ({ name: `t${n}` }));
      const body = { agentName: `a${nth}`, callbackUrl: "https://agent.example.test", tools };
      answers.push((await call("RegisterTool", body, elsewhere)).status);
    }
    expect(answers).toEqual([...Array.from({ length: 10 }, () => 200), 429]);
    const tools = await listed(elsewhere);
    expect(new Set(tools.map(({ qualifiedName }) => qualifiedName)).size).toBe(1_000);
    expect((await call("ListTools", { cursor: "!" }, elsewhere)).status).toBe(400);
    expect(await listed()).not.toContainEqual({ qualifiedName: "a0.t0" });
    expect((await invoke("a0.t0")).status).toBe(404);
  });

  test("roles, required scopes and policies bind callers", async () => {
    const agent = fresh(() => Response.json({ output: {} }));
    await register(agent, [{ name: "open" }, { name: "users", requiredScopes: ["users:read"] }]);
    const viewer = await caller("viewer");
    expect(await namesListed(agent, viewer)).toEqual([`${agent}.open`]);
    expect(await invoke(`${agent}.open`, {}, viewer)).toMatchObject(denied);
    const developer = await caller("developer");
    expect((await invoke(`${agent}.open`, {}, developer)).status).toBe(200);
    expect(await invoke(`${agent}.users`, {}, developer)).toMatchObject(denied);
    expect(await namesListed(agent, developer)).toEqual([`${agent}.open`]);
    expect((await invoke(`${agent}.users`)).status).toBe(200);

    const resources = `irn:svc:*:*:agent-tool:*:${agent}.open`;
    const bound = await caller("developer", { actions: "agent:tools:*", resources });
    expect(await invoke(`${agent}.open`, {}, bound)).toMatchObject(denied);
    expect(await namesListed(agent, bound)).toEqual([]);
    // Registering the agent again, or ending it, decides about the tool that is denied.
    const again = { agentName: agent, callbackUrl: agents.url(agent), tools: [{ name: "else" }] };
    expect(await call("RegisterTool", again, bound)).toMatchObject(denied);
    expect(await call("UnregisterTool", { agentName: agent }, bound)).toMatchObject(denied);
    // A scope that a policy takes away is missing as one that no role grants.
    const scoped = fresh(() => Response.json({ output: {} }));
    await register(scoped, [{ name: "t", requiredScopes: ["functions:invoke"] }]);
    const stopped = await caller("developer", { actions: "functions:invoke", resources: "*" });
    expect(await invoke(`${scoped}.t`, {}, stopped)).toMatchObject(denied);
    expect(await namesListed(scoped, stopped)).toEqual([]);
    // So is one for the function that the tool is named after.
    const byName = "irn:svc:*:*:function:*:t";
    const kept = await caller("developer", { actions: "functions:invoke", resources: byName });
    expect(await invoke(`${scoped}.t`, {}, kept)).toMatchObject(denied);
    expect(await namesListed(scoped, kept)).toEqual([]);
  });

  test("calls at once are bounded, and end with their caller", async () => {
    const agent = fresh(() => new Promise<Response>(() => {}));
    const quick = fresh(() => Response.json({ output: {} }));
    await register(agent, [{ name: "t" }]);
    await register(quick, [{ name: "t" }]);
    const gone = new AbortController();
    const refused: Response[] = [];
    for (let n = 0; n < 60; n++)
      fetch(`${server.url}/svc.v1.AgentToolsService/InvokeTool`, {
        method: "POST",
        headers: { authorization: `Bearer ${server.adminKey}`, "content-type": "application/json" },
        body: JSON.stringify({ toolName: `${agent}.t` }),
        signal: gone.signal,
      }).then(
        (response) => refused.push(response),
        () => {},
      );
    await until(() => refused.length === 10, { about: "calls beyond the limit", ...waiting });
    expect(refused.every(({ status }) => status === 429)).toBe(true);
    expect(refused[0]!.headers.get("retry-after")).toBe("1");
    expect((await invoke(`${quick}.t`)).status).toBe(429);
    gone.abort();
    const isRoom = async () => (await invoke(`${quick}.t`)).status === 200;
    await until(isRoom, { about: "room behind callers that left", ...waiting });
    // It is not the agent's fault that they left.
    const breakers = JSON.stringify((await server.api("/api/v1/circuit-breakers")).body);
    expect(breakers).not.toContain(`agent:${agent}"`);
  });

  test("calls leave audit rows without their input, and no secret is in any", async () => {
    const agent = fresh(() => Response.json({ output: {} }));
    const { hmacSecret } = await register(agent, [{ name: "t" }]);
    await outcome(`${agent}.t`, { marker: "do-not-keep" });
    await server.running.tick("audit.flush");
    const rows = await server.running.domain.store.all(sql`SELECT * FROM auth_audit`);
    const text = JSON.stringify(rows);
    expect(text).toContain("agentTools.register");
    expect(text).toContain("agentTools.invoke");
    expect(text).not.toContain("do-not-keep");
    expect(text).not.toContain(hmacSecret);
  });

  test("a new master key opens what the old one sealed", async () => {
    const agent = fresh(() => Response.json({ output: {} }));
    const { hmacSecret } = await register(agent, [{ name: "t" }]);
    const rotated = await server.api("/api/v1/cluster/rotate-token", {
      body: { kind: "master_key", new_value: "ab".repeat(32) },
    });
    expect(rotated.status).toBe(200);
    expect(await outcome(`${agent}.t`)).toEqual({ output: {} });
    expect(isSignedBy(hmacSecret, agents.of(agent)[0]!)).toBe(true);
  });
});
