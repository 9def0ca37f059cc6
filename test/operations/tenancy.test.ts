import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Frame } from "../../src/domain/realtime/pubsub/frames.ts";
import { type Answer, engines, startTestServer, type TestServer } from "../support/server.ts";

/** Foreign things must look like missing ones to the last byte. */
const same = (foreign: Answer, missing: Answer, foreignId: string, missingId: string) => {
  expect(foreign.status).toBe(missing.status);
  expect(JSON.stringify(foreign.body).replaceAll(foreignId, missingId)).toBe(JSON.stringify(missing.body));
};

describe.each(engines)("environments, projects and orgs on %s", (engine) => {
  let server: TestServer;
  let platform: string;
  /** Of another org. */
  let other: { orgId: string; env: string; key: string };

  const impersonating = (orgId: string) => ({ key: platform, headers: { "x-svc-org": orgId } });
  const provision = (org_name: string, env_name?: string) =>
    server.api("/api/v1/tenants/provision", {
      body: { org_name, ...(env_name && { env_name }) },
      ...impersonating("org_default"),
    });

  beforeAll(async () => {
    server = await startTestServer({ engine });
    platform = (
      await server.running.domain.keys.create({
        orgId: "org_platform",
        environmentId: null,
        name: "platform",
        roleIds: ["role_platform_admin"],
        isPlatform: true,
      })
    ).key;
    const { org, environment, api_key } = (await provision("Other")).body;
    other = { orgId: org.id, env: environment.id, key: api_key.key };
  }, 120_000);
  afterAll(() => server.stop());

  const create = (name: string, body: object = {}, key?: string) =>
    server.api("/api/v1/environments", { body: { name, ...body }, ...(key && { key }) });
  const remove = (path: string, key?: string) => server.api(path, { method: "DELETE", ...(key && { key }) });
  const keyIn = async (env_id: string, role_ids = ["role_admin"]) =>
    (await server.api("/api/v1/apikeys", { body: { name: "of it", env_id, role_ids } })).body.key as string;
  const emit = (key: string, event = "a") => server.rpc("SvcService", "Emit", { event }, { key });

  describe("environments", () => {
    test("are made, listed, renamed and deleted", async () => {
      const made = await create("staging", { color: "#ff0000" });
      expect(made).toMatchObject({
        status: 201,
        body: { name: "staging", color: "#ff0000", project_id: "proj_default" },
      });
      const { id } = made.body;
      expect(id).toMatch(/^env_/);
      const list = (await server.api("/api/v1/environments")).body;
      expect(list.map((one: { name: string }) => one.name)).toEqual(["default", "staging"]);
      expect(Object.keys(list[1]).sort()).toEqual(
        ["color", "created_at", "id", "name", "project_id", "updated_at"].sort(),
      );
      const put = await server.api(`/api/v1/environments/${id}`, { method: "PUT", body: { name: "prod" } });
      expect(put).toMatchObject({ status: 200, body: { id, name: "prod", color: "#ff0000" } });
      expect(await remove(`/api/v1/environments/${id}`)).toMatchObject({
        status: 200,
        body: { status: "deleted" },
      });
      expect((await server.api(`/api/v1/environments/${id}`)).status).toBe(404);
      const again = await create("prod");
      expect(again.status).toBe(201);
      expect(again.body.id).not.toBe(id);
      await remove(`/api/v1/environments/${again.body.id}`);
    });

    test.each(["", "Prod", "a b", "a.b", "é", "../etc", "a'--", "x".repeat(64), "a\n", "\u0000"])(
      "no environment is named %j",
      async (name) => {
        const made = await create(name);
        expect(made.status).toBe(400);
        expect(made.body.error).toStartWith("name: ");
        const renamed = await server.api("/api/v1/environments/env_default", {
          method: "PUT",
          body: { name },
        });
        expect(renamed.status).toBe(400);
      },
    );

    test("bad input is refused by field", async () => {
      expect((await create("default")).status).toBe(409);
      expect((await create("x", { color: "red; x" })).body.error).toStartWith("color: ");
      expect((await create("x", { project_id: "proj_none" })).body.error).toBe("project_id: unknown project");
      const { body: project } = await server.api("/api/v1/projects", {
        body: { name: "Theirs" },
        key: other.key,
      });
      expect((await create("x", { project_id: project.id })).body.error).toBe("project_id: unknown project");
      expect(await remove("/api/v1/environments/env_default")).toMatchObject({ status: 400 });
    });

    test("the list can be limited to a project", async () => {
      const { body: project } = await server.api("/api/v1/projects", { body: { name: "Limited" } });
      const made = (await create("limited", { project_id: project.id })).body;
      const list = await server.api(`/api/v1/environments?project_id=${project.id}`);
      expect(list.body).toEqual([made]);
      await remove(`/api/v1/projects/${project.id}`);
    });

    test("another org's looks like none", async () => {
      for (const call of [
        (id: string) => server.api(`/api/v1/environments/${id}`),
        (id: string) => server.api(`/api/v1/environments/${id}`, { method: "PUT", body: { name: "mine" } }),
        (id: string) => remove(`/api/v1/environments/${id}`),
        (id: string) => server.rpc("EnvironmentService", "GetEnvironment", { id }),
        (id: string) => server.rpc("EnvironmentService", "DeleteEnvironment", { id }),
        (id: string) => server.rpc("EnvironmentService", "RotateAPIKey", { id }),
      ])
        same(await call(other.env), await call("env_none"), other.env, "env_none");
      expect((await server.api("/api/v1/environments", { key: other.key })).body).toMatchObject([
        { id: other.env, name: "default" },
      ]);
    });

    test("platform callers reach every org's, and everyone those without a project", async () => {
      const { id } = (await create("by-platform")).body;
      const renamed = await server.api(`/api/v1/environments/${id}`, {
        method: "PUT",
        body: { name: "renamed-by-platform" },
        ...impersonating(other.orgId),
      });
      expect(renamed.body.name).toBe("renamed-by-platform");
      await remove(`/api/v1/environments/${id}`);
      const loose = await server.running.domain.tenancy.createEnvironment({
        orgId: "org_nobody",
        name: "loose",
      });
      expect((await remove(`/api/v1/environments/${loose.id}`)).status).toBe(200);
    });

    test("viewers list, developers write, only admins get a key's text", async () => {
      const viewer = await keyIn("env_default", ["role_viewer"]);
      const developer = await keyIn("env_default", ["role_developer"]);
      expect((await server.api("/api/v1/environments", { key: viewer })).status).toBe(200);
      expect((await create("by-viewer", {}, viewer)).status).toBe(403);
      const made = await create("by-developer", {}, developer);
      expect(made.status).toBe(201);
      const rotate = (key: string) =>
        server.rpc("EnvironmentService", "RotateAPIKey", { id: made.body.id }, { key });
      expect((await rotate(developer)).status).toBe(403);
      expect((await rotate(server.adminKey)).status).toBe(200);
      await remove(`/api/v1/environments/${made.body.id}`);
    });
  });

  describe("EnvironmentService", () => {
    test("keeps environments, and masks their keys", async () => {
      const call = (method: string, body: object = {}) => server.rpc("EnvironmentService", method, body);
      const made = (await call("CreateEnvironment", { name: "by-rpc" })).body;
      expect(made).toMatchObject({ name: "by-rpc", createdAt: expect.any(String) });
      expect(made.apiKey ?? "").toBe("");
      const first = (await call("RotateAPIKey", { id: made.id })).body;
      expect(first).toMatchObject({ id: made.id, name: "by-rpc" });
      expect(first.apiKey).toMatch(/^ifkey_[0-9a-f]{32}$/);
      expect((await emit(first.apiKey)).status).toBe(200);
      const second = (await call("RotateAPIKey", { id: made.id })).body;
      expect((await emit(first.apiKey)).status).toBe(401);
      expect((await emit(second.apiKey)).status).toBe(200);
      for (const info of [
        (await call("GetEnvironment", { id: made.id })).body,
        (await call("ListEnvironments")).body.environments.find((one: { id: string }) => one.id === made.id),
      ]) {
        expect(info.apiKey).toBe(`${second.apiKey.slice(0, 14)}********`);
        expect(JSON.stringify(info)).not.toContain(second.apiKey);
      }
      const keys = (await server.api("/api/v1/apikeys")).body as {
        environment_id: string;
        role_ids: string[];
      }[];
      expect(keys.filter((key) => key.environment_id === made.id)).toMatchObject([
        { role_ids: ["role_developer"] },
      ]);
      expect((await call("DeleteEnvironment", { id: made.id })).body).toEqual({ success: true });
      expect((await emit(second.apiKey)).status).toBe(401);
      expect((await call("GetEnvironment", { id: made.id })).body).toMatchObject({ code: "not_found" });
    });
  });

  describe("deletion", () => {
    /** Frames of the environment's readers from now on. */
    const framesIn = (id: string) => {
      const frames: Frame[] = [];
      server.running.domain.frames.listen(id, (frame) => frames.push(frame));
      return frames;
    };
    const payloads = (frames: readonly Frame[]) => frames.map(({ data }) => JSON.parse(data));

    test("ends everything at once and says so once", async () => {
      const { id } = (await create("doomed")).body;
      const frames = framesIn(id);
      const others = framesIn("env_default");
      const key = await keyIn(id);
      expect((await emit(key)).status).toBe(200);
      const poll = server.api("/api/v1/workers/w1/jobs?available=1", { key });
      await poll;
      expect((await remove(`/api/v1/environments/${id}`)).status).toBe(200);
      expect((await emit(key)).status).toBe(401);
      expect((await server.api("/api/v1/workers/w1/jobs?available=1", { key })).status).toBe(401);
      expect(frames).toMatchObject([{ topic: `system.environment.${id}.deleted` }]);
      expect(payloads(frames)).toEqual([
        { id, name: "doomed", projectId: "proj_default", timestamp: expect.any(String) },
      ]);
      expect((await remove(`/api/v1/environments/${id}`)).status).toBe(404);
      expect((await remove("/api/v1/environments/env_default")).status).toBe(400);
      expect(frames.length).toBe(1);
      expect(others).toEqual([]);
    });

    test("of a project takes its environments along, one frame each", async () => {
      const { body: project } = await server.api("/api/v1/projects", { body: { name: "Doomed" } });
      const envs = [];
      for (const name of ["one", "two", "three"])
        envs.push((await create(name, { project_id: project.id })).body.id as string);
      const frames = new Map(envs.map((id) => [id, framesIn(id)]));
      const key = await keyIn(envs[0]!);
      expect(await remove(`/api/v1/projects/${project.id}`)).toMatchObject({
        status: 200,
        body: { deleted: project.id },
      });
      for (const id of envs) {
        expect((await server.api(`/api/v1/environments/${id}`)).status).toBe(404);
        expect(payloads(frames.get(id) ?? [])).toMatchObject([{ id, projectId: project.id }]);
      }
      expect((await emit(key)).status).toBe(401);
      expect((await remove(`/api/v1/projects/${project.id}`)).status).toBe(404);
      expect((await remove("/api/v1/projects/proj_default")).status).toBe(400);
    });

    test("of an org takes everything along", async () => {
      const { org, environment, api_key } = (await provision("Doomed org", "live")).body;
      const as = { key: api_key.key as string };
      const frames = framesIn(environment.id);
      await server.api("/api/v1/users", {
        ...as,
        body: { email: `doomed-${engine}@example.com`, password: "correct horse battery", roles: ["admin"] },
      });
      const { body: session } = await server.api("/api/v1/auth/login", {
        key: null,
        body: { email: `doomed-${engine}@example.com`, password: "correct horse battery" },
      });
      expect((await server.api("/api/v1/environments", { key: session.token })).body).toMatchObject([
        { id: environment.id },
      ]);
      await server.api("/api/v1/roles", { ...as, body: { name: "own" } });
      expect((await remove(`/api/v1/orgs/${org.id}`, as.key)).status).toBe(204);
      expect((await emit(as.key)).status).toBe(401);
      expect(frames.length).toBe(1);
      expect((await server.api("/api/v1/environments", impersonating(org.id))).status).toBe(404);
      expect((await remove("/api/v1/orgs/org_default")).status).toBe(400);
    });
  });

  describe("projects", () => {
    test("are made, listed and renamed; another org's look like none", async () => {
      const { status, body: project } = await server.api("/api/v1/projects", {
        body: { name: " Shop ", description: "Sells" },
      });
      expect(status).toBe(201);
      expect(project).toMatchObject({ name: "Shop", org_id: "org_default", description: "Sells" });
      const put = await server.api(`/api/v1/projects/${project.id}`, {
        method: "PUT",
        body: { name: "Store" },
      });
      expect(put.body).toMatchObject({ id: project.id, name: "Store" });
      expect((await server.api("/api/v1/projects")).body.map((one: { name: string }) => one.name)).toEqual([
        "Default",
        "Store",
      ]);
      for (const call of [
        (id: string) => remove(`/api/v1/projects/${id}`, other.key),
        (id: string) =>
          server.api(`/api/v1/projects/${id}`, { method: "PUT", body: { name: "x" }, key: other.key }),
      ])
        same(await call(project.id), await call("proj_none"), project.id, "proj_none");
      for (const name of ["", "  ", "a\u0000", "x".repeat(201), "\ud800"])
        expect((await server.api("/api/v1/projects", { body: { name } })).status).toBe(400);
      await remove(`/api/v1/projects/${project.id}`);
    });
  });

  describe("orgs and tenants", () => {
    test("an admin sees and changes their own org only", async () => {
      expect((await server.api("/api/v1/orgs", { key: other.key })).body).toMatchObject([
        { id: other.orgId, name: "Other" },
      ]);
      const patch = (id: string, body: object) =>
        server.api(`/api/v1/orgs/${id}`, { method: "PATCH", body, key: other.key });
      expect(
        (await patch(other.orgId, { preferences: { default_timezone: "Europe/Berlin" } })).body,
      ).toMatchObject({
        name: "Other",
        preferences: { default_timezone: "Europe/Berlin" },
      });
      expect((await patch(other.orgId, { name: "Others" })).body).toMatchObject({
        name: "Others",
        preferences: { default_timezone: "Europe/Berlin" },
      });
      expect(
        (await patch(other.orgId, { preferences: { default_timezone: "Mars/Base" } })).body.error,
      ).toStartWith("preferences.default_timezone: ");
      for (const call of [
        (id: string) => server.api(`/api/v1/orgs/${id}`, { key: other.key }),
        (id: string) => patch(id, { name: "x" }),
        (id: string) => remove(`/api/v1/orgs/${id}`, other.key),
      ])
        same(await call("org_default"), await call("org_none"), "org_default", "org_none");
      const developer = await keyIn("env_default", ["role_developer"]);
      expect((await server.api("/api/v1/orgs", { key: developer })).status).toBe(403);
    });

    test("what lies across orgs takes a platform credential that names an org", async () => {
      const refused = { status: 403, body: { error: "platform credential required" } };
      expect(await server.api("/api/v1/tenants")).toMatchObject(refused);
      const provisioned = await server.api("/api/v1/tenants/provision", { body: { org_name: "Mine" } });
      expect(provisioned).toMatchObject(refused);
      expect((await server.api("/api/v1/orgs", { body: { name: "Mine" }, key: platform })).status).toBe(403);
      const made = await server.api("/api/v1/orgs", {
        body: { name: "Made" },
        ...impersonating("org_default"),
      });
      expect(made).toMatchObject({ status: 201, body: { name: "Made" } });
      const { body: tenants } = await server.api("/api/v1/tenants", impersonating("org_default"));
      const ids = tenants.map((one: { id: string }) => one.id);
      expect(ids).toContain(made.body.id);
      expect(ids).not.toContain("org_platform");
      expect(tenants.find((one: { id: string }) => one.id === other.orgId)).toMatchObject({
        env_count: 1,
        key_count: 1,
      });
    });

    test("no tenant makes an org, whatever its roles; who lacks the action is told that first", async () => {
      const before = (await server.api("/api/v1/tenants", impersonating("org_default"))).body.length;
      expect(await server.api("/api/v1/orgs", { body: { name: "Mine" } })).toMatchObject({
        status: 403,
        body: { error: "platform credential required" },
      });
      for (const role of ["role_developer", "role_viewer"]) {
        const key = await keyIn("env_default", [role]);
        expect(await server.api("/api/v1/orgs", { body: { name: "x" }, key })).toMatchObject({
          status: 403,
          body: { error: "Insufficient permissions: platform:tenants:manage is granted by admin" },
        });
      }
      expect((await server.api("/api/v1/tenants", impersonating("org_default"))).body).toHaveLength(before);
    });

    test("a provisioned tenant works at once", async () => {
      const { status, body } = await provision("Fresh", "live");
      expect(status).toBe(201);
      expect(body).toMatchObject({
        org: { name: "Fresh" },
        environment: { name: "live" },
        api_key: { roles: ["admin"] },
      });
      const key = body.api_key.key as string;
      expect((await emit(key)).status).toBe(200);
      expect((await server.api("/api/v1/projects", { key })).body).toMatchObject([{ name: "Default" }]);
      expect(
        (await server.api("/api/v1/roles", { key })).body.map((one: { id: string }) => one.id),
      ).toContain("role_admin");
      expect((await provision("", "live")).body.error).toStartWith("org_name: ");
      expect((await provision("x", "Not a name")).body.error).toStartWith("env_name: ");
    });

    test("an org without a project gets one with its first environment", async () => {
      const { body: org } = await server.api("/api/v1/orgs", {
        body: { name: "Bare" },
        ...impersonating("org_default"),
      });
      const made = await server.api("/api/v1/environments", {
        body: { name: "first" },
        ...impersonating(org.id),
      });
      expect(made.status).toBe(201);
      expect(made.body.project_id).toMatch(/^proj_/);
    });
  });
});
