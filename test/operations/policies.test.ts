import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { holdsWithin } from "../support/within.ts";

describe.each(engines)("roles and policies on %s", (engine) => {
  let server: TestServer;
  /** A second node on the same database, without a bus in between. */
  let other: TestServer | undefined;

  beforeAll(async () => {
    server = await startTestServer({ engine });
    if (engine === "postgres") other = await startTestServer({ engine, home: server.home });
  });
  afterAll(async () => {
    await other?.stop();
    await server.stop();
  });

  const keyWith = async (roleIds: string[], orgId = "org_default") =>
    (
      await server.running.domain.keys.create({
        orgId,
        environmentId: "env_default",
        name: "test",
        roleIds,
      })
    ).key;
  const create = async (path: string, body: object) => {
    const answer = await server.api(path, { body });
    expect(answer.status).toBe(201);
    return answer.body;
  };
  const policy = (name: string, rest: object = {}) =>
    create("/api/v1/policies", { name, effect: "deny", actions: "events:emit", resources: "*", ...rest });
  const emit = (key: string, event: string, node = server) =>
    node.rpc("SvcService", "Emit", { event }, { key });

  test("built-in roles are listed and cannot be changed", async () => {
    const { body } = await server.api("/api/v1/roles");
    expect(body.slice(0, 3).map((role: { id: string }) => role.id)).toEqual([
      "role_admin",
      "role_developer",
      "role_viewer",
    ]);
    expect(body[0]).toMatchObject({
      name: "admin",
      is_default: true,
      org_id: "org_default",
      policy_count: 0,
    });
    expect(body[0].api_key_count).toBeGreaterThanOrEqual(1);
    const renamed = await server.api("/api/v1/roles/role_admin", { method: "PATCH", body: { name: "boss" } });
    expect(renamed).toMatchObject({ status: 400, body: { error: "cannot update built-in role" } });
    const deleted = await server.api("/api/v1/roles/role_viewer", { method: "DELETE" });
    expect(deleted).toMatchObject({ status: 400, body: { error: "cannot delete built-in role" } });
  });

  test("a custom role grants what its base grants; deleted, its keys hold nothing", async () => {
    const role = await create("/api/v1/roles", { name: "support", base: "developer" });
    expect(role).toMatchObject({ name: "support", base: "developer", is_default: false });
    expect(role.id).toStartWith("role_");
    const key = await keyWith([role.id]);
    expect((await emit(key, "a")).status).toBe(200);
    expect((await server.api("/api/v1/roles", { key })).status).toBe(403);
    expect((await server.api("/api/v1/roles", { body: { name: "support" } })).status).toBe(409);
    const viewer = await server.api(`/api/v1/roles/${role.id}`, {
      method: "PATCH",
      body: { base: "viewer" },
    });
    expect(viewer).toMatchObject({ status: 200, body: { base: "viewer" } });
    expect((await emit(key, "a")).status).toBe(403);
    const refused = await server.api(`/api/v1/roles/${role.id}`, { method: "DELETE" });
    expect(refused).toMatchObject({ status: 409, body: { code: "failed_precondition" } });
    const forced = await server.api(`/api/v1/roles/${role.id}?force=true`, { method: "DELETE" });
    expect(forced.status).toBe(204);
    expect((await server.api(`/api/v1/roles/${role.id}`)).status).toBe(404);
    expect((await server.api("/api/v1/events", { key })).status).toBe(403);
  });

  test("bad roles are refused by field", async () => {
    for (const [body, field] of [
      [{ name: "" }, "name"],
      [{ name: "x".repeat(101) }, "name"],
      [{ name: "role_admin" }, "name"],
      [{ name: "a\u0000b" }, "name"],
      [{ name: "other", base: "platform_admin" }, "base"],
      [{ name: "other", policy_ids: ["pol_none"] }, "policy_ids"],
      [{ name: "other", unknown: 1 }, "unknown"],
    ] as const) {
      const answer = await server.api("/api/v1/roles", { body });
      expect(`${answer.status} ${answer.body.error}`).toStartWith(`400 ${field}`);
    }
    expect((await server.api("/api/v1/roles", { body: { name: "admin" } })).status).toBe(409);
    expect((await server.api("/api/v1/roles?org_id=org_other")).status).toBe(404);
  });

  test("a deny policy holds on every node within a second, and is gone within a second", async () => {
    const { id } = await policy("no-orders", { resources: "irn:svc:*:*:event:default:order.*" });
    const key = await keyWith(["role_developer"]);
    for (const node of [server, other])
      if (node) expect((await emit(key, "order.placed", node)).status).toBe(200);
    expect(
      (await server.api("/api/v1/roles/role_developer/policies", { body: { policy_id: id } })).status,
    ).toBe(204);
    expect((await emit(key, "order.placed")).body).toEqual({
      code: "permission_denied",
      message: "Insufficient permissions",
    });
    expect((await emit(key, "invoice.sent")).status).toBe(200);
    const batch = await server.rpc(
      "SvcService",
      "TriggerBatch",
      { events: [{ event: "invoice.sent" }, { event: "order.placed" }] },
      { key },
    );
    expect(batch.status).toBe(403);
    const answeredThere = (status: number) => async () =>
      other === undefined || (await emit(key, "order.placed", other)).status === status;
    await holdsWithin(1_000, answeredThere(403), "the denial");
    const listed = await server.api("/api/v1/roles/role_developer/policies");
    expect(listed.body.policies.map((one: { name: string }) => one.name)).toEqual(["no-orders"]);
    const gone = await server.api(`/api/v1/roles/role_developer/policies/${id}`, { method: "DELETE" });
    expect(gone.status).toBe(204);
    expect((await emit(key, "order.placed")).status).toBe(200);
    await holdsWithin(1_000, answeredThere(200), "its end");
  });

  test("a function that may not be read by its id may not by its slug", async () => {
    const register = (id: string, slug: string) =>
      server.rpc("SvcService", "RegisterFunction", { id, slug, triggers: [] });
    await register("hidden-function", "hidden-slug");
    await register("open-function", "open-slug");
    const { id } = await policy("no-hidden", {
      actions: "functions:read",
      resources: "irn:svc:*:*:function:*:hidden-function",
    });
    const role = await create("/api/v1/roles", { name: "curious", base: "developer" });
    await server.api(`/api/v1/roles/${role.id}/policies`, { body: { policy_id: id } });
    const key = await keyWith([role.id]);
    const read = async (name: string) =>
      (await server.rpc("SvcService", "GetFunction", { id: name }, { key })).status;
    await until(async () => (await read("hidden-function")) === 403, { about: "the denial" });
    expect([await read("hidden-slug"), await read("open-slug"), await read("none")]).toEqual([403, 200, 404]);
  });

  test("an admin's 403 says which policy it was", async () => {
    const { id } = await policy("not-even-admins", { resources: "irn:svc:*:*:event:*:forbidden" });
    await server.api("/api/v1/roles/role_admin/policies", { body: { policy_id: id } });
    const { body } = await server.rpc("SvcService", "Emit", { event: "forbidden" });
    expect(body.message).toBe(`Insufficient permissions: denied by policy "not-even-admins" (${id})`);
    await server.api(`/api/v1/policies/${id}`, { method: "DELETE" });
  });

  test("every update is a version; a rollback writes the next one", async () => {
    const { id } = await policy("versioned");
    const updated = await server.api(`/api/v1/policies/${id}`, {
      method: "PATCH",
      body: { condition: "time.hour < 8", change_reason: "nights only" },
    });
    expect(updated.body).toMatchObject({ version: 2, condition: "time.hour < 8", actions: "events:emit" });
    const back = await server.api(`/api/v1/policies/${id}/rollback/1`, { method: "POST" });
    expect(back.body).toMatchObject({ version: 3, condition: "" });
    const { body: versions } = await server.api(`/api/v1/policies/${id}/versions`);
    expect(versions.map((one: { version_num: number }) => one.version_num)).toEqual([3, 2, 1]);
    expect(versions[1]).toMatchObject({
      policy_id: id,
      effect: "deny",
      change_reason: "nights only",
      author_id: "ak_admin_bootstrap",
      enabled: false,
      valid_until: versions[0].valid_from,
    });
    expect((await server.api(`/api/v1/policies/${id}/rollback/9`, { method: "POST" })).status).toBe(404);
  });

  test("bad policies are refused by field, and change nothing", async () => {
    const good = { name: "bad", effect: "deny", actions: "*", resources: "*" };
    for (const [change, message] of [
      [{ effect: "permit" }, 'effect: must be "deny"'],
      [
        { actions: "runs eat" },
        'actions: invalid action pattern "runs eat" (an action such as runs:cancel, or runs:*)',
      ],
      [{ actions: "" }, "actions: at least one action"],
      [{ resources: "function:x" }, "resources: "],
      [{ condition: "1 + 1" }, "condition: must be true or false, not int"],
      [{ condition: `${"(".repeat(200)}true${")".repeat(200)}` }, "condition: "],
      [
        { condition: "subject.roles.all(a, subject.roles.all(b, subject.roles.all(c, a == b && b == c)))" },
        "condition: macros may be nested 2 deep at most",
      ],
      [{ condition: `resource.id == "${"x".repeat(5_000)}"` }, "condition: at most 4096 bytes"],
      [{ name: " " }, "name: must not be empty"],
    ] as const) {
      const answer = await server.api("/api/v1/policies", { body: { ...good, ...change } });
      expect(answer.status).toBe(400);
      expect(answer.body.error).toStartWith(message);
    }
    const allow = await server.api("/api/v1/policies", { body: { ...good, effect: "allow" } });
    expect(allow).toMatchObject({ status: 400, body: { code: "policy_effect_allow_deprecated" } });
    const huge = await server.api("/api/v1/policies", {
      body: { ...good, condition: "x".repeat(1_000_000) },
    });
    expect(huge.status).toBe(400);
    const { body } = await server.api("/api/v1/policies");
    expect(body.some((one: { name: string }) => one.name === "bad")).toBe(false);
    await policy("taken");
    expect((await server.api("/api/v1/policies", { body: { ...good, name: "taken" } })).status).toBe(409);
  });

  test("what can match nothing is kept, and says so wherever the policy is shown", async () => {
    const idle = { actions: "runs:eat, runs:read", resources: "irn:svc:*, irn:svc:*:*:functions:*:*, *" };
    const warnings = [
      'actions: "runs:eat" matches no known action',
      expect.stringContaining('resources: "irn:svc:*" matches nothing: expected the seven segments'),
      'resources: "irn:svc:*:*:functions:*:*" matches nothing: unknown resource type functions',
    ];
    const made = await server.api("/api/v1/policies", { body: { name: "idle", effect: "deny", ...idle } });
    expect(made).toMatchObject({ status: 201, body: { warnings } });
    const { id } = made.body;
    expect((await server.api(`/api/v1/policies/${id}`)).body.warnings).toEqual(warnings);
    const { body: list } = await server.api("/api/v1/policies");
    const listed = new Map(list.map((one: { name: string }) => [one.name, one]));
    expect(listed.get("idle")).toMatchObject({ warnings });
    const { body: tried } = await server.api("/api/v1/policies/dry-run", { body: { policy_id: id } });
    expect(tried.warnings).toEqual(warnings);
    const foreign = await server.api(`/api/v1/policies/${id}`, {
      method: "PATCH",
      body: { actions: "runs:*", resources: "irn:svc:org_other:*:run:*:*" },
    });
    expect(foreign.body.warnings).toEqual([
      'resources: "irn:svc:org_other:*:run:*:*" matches nothing: it names another org',
    ]);
    const sound = await server.api(`/api/v1/policies/${id}`, {
      method: "PATCH",
      body: { resources: "irn:svc:org_*:*:run:*:*" },
    });
    expect(sound.status).toBe(200);
    expect(sound.body.warnings).toBeUndefined();
  });

  test("conditions may name roles by id and by name, of keys and of users", async () => {
    const role = await create("/api/v1/roles", { name: "named", base: "developer" });
    const { id } = await policy("by-name", {
      actions: "events:emit",
      condition: '"named" in subject.roles && resource.id == "n"',
    });
    const other = await policy("by-id", {
      actions: "events:emit",
      condition: `"${role.id}" in subject.roles && resource.id == "i"`,
    });
    for (const policy_id of [id, other.id])
      await server.api(`/api/v1/roles/${role.id}/policies`, { body: { policy_id } });
    const password = "correct horse battery";
    const login = { email: "named@example.com", password };
    await create("/api/v1/users", { ...login, roles: ["named"] });
    const { status, body } = await server.api("/api/v1/auth/login", { key: null, body: login });
    expect(status).toBe(200);
    for (const key of [await keyWith([role.id]), body.token])
      expect([
        (await emit(key, "n")).status,
        (await emit(key, "i")).status,
        (await emit(key, "a")).status,
      ]).toEqual([403, 403, 200]);
  });

  test("a role without a base grants nothing; with one, and without it again", async () => {
    const role = await create("/api/v1/roles", { name: "bare" });
    expect(role.base).toBeUndefined();
    const key = await keyWith([role.id]);
    const read = async () => (await server.api("/api/v1/events", { key })).status;
    expect(await read()).toBe(403);
    const patch = (base: string) =>
      server.api(`/api/v1/roles/${role.id}`, { method: "PATCH", body: { base } });
    expect((await patch("viewer")).body.base).toBe("viewer");
    expect(await read()).toBe(200);
    expect((await patch("")).body.base).toBeUndefined();
    expect(await read()).toBe(403);
  });

  test("built-in roles are as old as the installation", async () => {
    const { body } = await server.api("/api/v1/roles");
    const { body: org } = await server.api("/api/v1/orgs/org_default");
    for (const role of body.filter((one: { is_default: boolean }) => one.is_default))
      expect(role.created_at).toBe(org.created_at);
    expect(Date.parse(org.created_at)).toBeGreaterThan(0);
  });

  test("a dry run tells without storing", async () => {
    const run = (body: object) => server.api("/api/v1/policies/dry-run", { body });
    const condition = 'resource.id == "pay" && "role_viewer" in subject.roles';
    const sample = { subject: { roles: ["role_viewer"] }, request: { resource: "pay" } };
    expect((await run({ condition, ...sample })).body).toEqual({
      matched: true,
      condition_source: condition,
    });
    expect((await run({ condition, request: { resource: "other" } })).body.matched).toBe(false);
    expect((await run({ condition: "1 +" })).body).toMatchObject({ matched: false, condition_source: "1 +" });
    expect((await run({ condition: "1 +" })).body.compile_error).toBeString();
    expect((await run({ condition: "resource.nothing == 1" })).body).toMatchObject({
      matched: true,
      eval_error: expect.any(String),
    });
    expect((await run({ policy_id: "pol_none" })).status).toBe(404);
    expect((await run({})).status).toBe(400);
    const long = { condition: "double(resource.id) > 1.0", request: { resource: "1".repeat(5_000) } };
    expect(await run(long)).toMatchObject({ status: 400, body: { field: "request.resource" } });
  });

  test("a template is installed, again without doubling, and holds", async () => {
    const { body: templates } = await server.api("/api/v1/policy-templates");
    expect(templates.map((one: { id: string }) => one.id)).toEqual([
      "tmpl_read_only_production",
      "tmpl_no_secrets_for_viewers",
      "tmpl_business_hours",
      "tmpl_protected_functions",
    ]);
    const install = () =>
      server.api("/api/v1/policy-templates/tmpl_protected_functions/install", { method: "POST" });
    const first = await install();
    expect(first.body).toMatchObject({ template_id: "tmpl_protected_functions", policies_count: 1 });
    expect((await install()).body.policies[0]).toMatchObject({ id: first.body.policies[0].id, version: 2 });
    const key = await keyWith(["role_developer"]);
    const register = (id: string) => server.rpc("SvcService", "RegisterFunction", { id }, { key });
    expect((await register("protected-pay")).status).toBe(403);
    expect((await register("open")).status).toBe(200);
    const none = await server.api("/api/v1/policy-templates/tmpl_none/install", { method: "POST" });
    expect(none.status).toBe(404);
  });

  test("another org's roles and policies look like none", async () => {
    const { id } = await policy("mine");
    const key = await keyWith(["role_admin"], "org_stranger");
    for (const [path, method, body] of [
      [`/api/v1/policies/${id}`, "GET", undefined],
      [`/api/v1/policies/${id}`, "PATCH", { name: "theirs" }],
      [`/api/v1/policies/${id}`, "DELETE", undefined],
      [`/api/v1/policies/${id}/versions`, "GET", undefined],
    ] as const) {
      const own = await server.api(path, { method, body, key });
      const none = await server.api(path.replace(id, "pol_none"), { method, body, key });
      expect(own.status).toBe(404);
      expect(JSON.stringify(own.body).replaceAll(id, "pol_none")).toBe(JSON.stringify(none.body));
    }
  });
});
