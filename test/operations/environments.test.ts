import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { keptLog, whoOperations } from "../support/who.ts";

const unknown = { error: "unknown environment", message: "unknown environment", code: "invalid_argument" };

describe.each(engines)("environment selection on %s", (engine) => {
  const kept = keptLog();
  /** Whoever is not a key chooses among the environments of their org; `--dev` is such a caller. */
  let open: TestServer;
  let staging: string;
  let foreign: string;

  beforeAll(async () => {
    open = await startTestServer({
      engine,
      operations: whoOperations,
      log: kept.log,
      settings: { dev: true },
    });
    const { tenancy } = open.running.domain;
    staging = (await tenancy.createEnvironment({ orgId: "org_default", name: "staging" })).id;
    foreign = (await tenancy.createEnvironment({ orgId: "org_other", name: "theirs" })).id;
  });
  afterAll(() => open.stop());

  const chosen = async (selector: string) => {
    const byHeader = await open.api("/test/who", { environment: selector });
    const byQuery = await open.api(`/test/who?env=${encodeURIComponent(selector)}`);
    expect({ status: byQuery.status, body: byQuery.body }).toEqual({
      status: byHeader.status,
      body: byHeader.body,
    });
    return byHeader.status === 200 ? byHeader.body.environment_id : byHeader;
  };

  test("an id that exists is used", async () => {
    expect(await chosen(staging)).toBe(staging);
  });

  test("an id that does not exist is 400", async () => {
    expect(await chosen("env_nowhere")).toMatchObject({ status: 400, body: unknown });
  });

  test("an id of another org looks like none; a name of another org does not resolve", async () => {
    expect(await chosen(foreign)).toMatchObject({ status: 400, body: unknown });
    expect(await chosen("theirs")).toBe("env_default");
  });

  test("a name that resolves is used", async () => {
    expect(await chosen("staging")).toBe(staging);
    expect(await chosen("default")).toBe("env_default");
  });

  test.each(["nowhere", "Not A Name!", "x".repeat(500)])(
    "a name that does not resolve falls back: %s",
    async (name) => {
      expect(await chosen(name)).toBe("env_default");
      const lines = kept
        .of("environment.fell_back")
        .filter(({ fields }) => name.startsWith(String(fields.name)));
      expect(lines).toHaveLength(1);
    },
  );

  test("nothing selected is env_default", async () => {
    expect((await open.api("/test/who")).body.environment_id).toBe("env_default");
    expect((await open.api("/test/who?env=")).body.environment_id).toBe("env_default");
  });

  test("the header beats the query", async () => {
    const answer = await open.api("/test/who?env=default", { environment: "staging" });
    expect(answer.body.environment_id).toBe(staging);
  });

  test("a new environment is found at once, though it was missed a moment ago", async () => {
    expect(await chosen("fresh")).toBe("env_default");
    const made = await open.running.domain.tenancy.createEnvironment({ orgId: "org_default", name: "fresh" });
    expect(await chosen("fresh")).toBe(made.id);
  });

  test("a lookup that fails is 500", async () => {
    const { store } = open.running.domain;
    const one = store.one;
    store.one = () => Promise.reject(new Error("the disk is gone"));
    try {
      const { status, body } = await open.api("/test/who", { environment: "never-asked-before" });
      expect({ status, message: body.message }).toEqual({
        status: 500,
        message: "environment lookup failed",
      });
    } finally {
      store.one = one;
    }
    expect((await open.api("/test/who", { environment: "never-asked-before" })).status).toBe(200);
  });

  test("a new environment has a head; names keep to their letters and are taken once", async () => {
    const { store, tenancy } = open.running.domain;
    const { id } = await tenancy.createEnvironment({ orgId: "org_default", name: "with-head-1" });
    expect(id).toMatch(/^env_[0-9a-z]{26}$/);
    const head = await store.one(sql`SELECT position, epoch FROM heads WHERE environment_id = ${id}`);
    expect(head).toMatchObject({ position: 0, epoch: 1 });
    const make = (name: string) => tenancy.createEnvironment({ orgId: "org_default", name });
    for (const name of ["", "Upper", "under_score", "dot.dot", "ünïcode", "x".repeat(64)]) {
      await expect(make(name)).rejects.toMatchObject({ kind: "invalid_argument", field: "name" });
    }
    // The word that stands for the environment of a key: no request could choose one of that name.
    for (const [method, path] of [
      ["POST", "/api/v1/environments"],
      ["PUT", `/api/v1/environments/${id}`],
    ] as const) {
      const { status, body } = await open.api(path, { method, body: { name: "current" } });
      expect({ status, message: body.message }).toEqual({
        status: 400,
        message: "name: must not be current: it stands for the environment of a key",
      });
    }
    await expect(make("with-head-1")).rejects.toMatchObject({ kind: "already_exists" });
    await expect(
      tenancy.createEnvironment({ orgId: "org_other", name: "with-head-1" }),
    ).resolves.toBeDefined();
    await expect(
      tenancy.createEnvironment({ orgId: "org_other", name: "y", projectId: "proj_default" }),
    ).rejects.toMatchObject({ kind: "invalid_argument", field: "project_id" });
  });
});

describe.each(engines)("a tenant key on %s", (engine) => {
  let server: TestServer;
  let staging: string;
  let key: string;

  beforeAll(async () => {
    server = await startTestServer({ engine, operations: whoOperations });
    const { tenancy, keys } = server.running.domain;
    staging = (await tenancy.createEnvironment({ orgId: "org_default", name: "staging" })).id;
    const roleIds = ["role_admin"];
    key = (await keys.create({ orgId: "org_default", environmentId: staging, name: "staging", roleIds })).key;
  });
  afterAll(() => server.stop());

  test("stays in its environment when nothing or that one is selected", async () => {
    for (const environment of [undefined, staging, "staging"]) {
      const answer = await server.api("/test/who", { key, ...(environment && { environment }) });
      expect(answer.body.environment_id).toBe(staging);
    }
  });

  test.each([
    ["env_default", 403, /^environment does not match API key scope: leave X-Svc-Environment away/],
    ["default", 403, /^environment does not match API key scope: leave X-Svc-Environment away/],
    ["nowhere", 403, /^environment does not match API key scope: leave X-Svc-Environment away/],
    ["env_nowhere", 400, /^unknown environment$/],
  ])("asked into %s: %d", async (environment, status, error) => {
    const answer = await server.api("/test/who", { key, environment });
    expect(answer).toMatchObject({ status, body: { error: expect.stringMatching(error) } });
    expect((await server.api(`/test/who?env=${environment}`, { key })).status).toBe(status);
  });

  test("no key of another org gets into env_default by the fallback", async () => {
    const { tenancy, keys } = server.running.domain;
    const theirs = await tenancy.createEnvironment({ orgId: "org_other", name: "theirs" });
    const roleIds = ["role_admin"];
    const made = await keys.create({ orgId: "org_other", environmentId: theirs.id, name: "theirs", roleIds });
    expect((await server.api("/test/who", { key: made.key })).body.environment_id).toBe(theirs.id);
    expect((await server.api("/test/who", { key: made.key, environment: "nowhere" })).status).toBe(403);
  });
});

describe.each(engines)("strict names on %s", (engine) => {
  test("a name that does not resolve is 400", async () => {
    const settings = { strictEnvironment: true };
    const server = await startTestServer({ engine, operations: whoOperations, settings });
    try {
      expect((await server.api("/test/who", { environment: "default" })).status).toBe(200);
      const { status, body } = await server.api("/test/who", { environment: "nowhere" });
      expect({ status, body }).toEqual({ status: 400, body: unknown });
    } finally {
      await server.stop();
    }
  });
});
