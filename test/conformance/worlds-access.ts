import { expect } from "bun:test";
import { createClient } from "../../src/sdk/index.ts";
import { makeCli } from "../support/cli.ts";
import { exportOf } from "../support/exports.ts";
import { until } from "../support/until.ts";
import type { Inside } from "../support/worlds.ts";
import type { Promises } from "./worlds.ts";

const password = "correct horse battery";

const made = async ({ api }: Inside, path: string, body: object) => {
  const answer = await api(path, { body });
  expect([path, answer.status, answer.body]).toEqual([path, 201, expect.anything()]);
  return answer.body;
};
const keyOf = async (inside: Inside, name: string, more: object = {}): Promise<{ id: string; key: string }> =>
  made(inside, "/api/v1/apikeys", { name, ...more });

export const promisesOfAccess: Promises = {
  async "no key and a wrong one are refused"({ api, adminKey }) {
    const statuses = [null, `${adminKey.slice(0, -1)}x`].map(
      async (key) => (await api("/api/v1/events", { key })).status,
    );
    expect(await Promise.all(statuses)).toEqual([401, 401]);
  },
  async "a person signs in, is who they are, and signs out"(inside) {
    const { api } = inside;
    await made(inside, "/api/v1/users", { email: "INDIRA.I@example.com", password, roles: ["viewer"] });
    const login = (email: string, typed = password) =>
      api("/api/v1/auth/login", { body: { email, password: typed }, key: null });
    const { status, body } = await login("indira.i@EXAMPLE.com");
    expect([status, (await login("indira.i@example.com", "wrong")).status]).toEqual([200, 401]);
    const session = await api("/api/v1/auth/session", { key: body.token });
    expect(session.status).toBe(200);
    expect((await api("/api/v1/auth/logout", { method: "POST", key: body.token })).status).toBeLessThan(300);
    await until(async () => (await api("/api/v1/auth/session", { key: body.token })).status === 401, {
      about: "the end of the session",
    });
  },
  async "a role grants what it says, and no more"(inside) {
    const { key } = await keyOf(inside, "access viewer", { role_ids: ["role_viewer"] });
    const viewer = createClient({ url: inside.url, apiKey: key });
    expect((await viewer.events.list({ limit: 1 })).events.length).toBeLessThanOrEqual(1);
    expect(await viewer.emit("access.never", {}).catch(({ code }) => code)).toBe("permission_denied");
  },
  async "a policy hides what it names, in lists too"(inside) {
    const { client } = inside;
    for (const name of ["access-I", "access-i"])
      await client.secrets.create(name.replace("-", "_"), "s3cret");
    const role = await made(inside, "/api/v1/roles", { name: "access hidden", base: "admin" });
    const policy = await made(inside, "/api/v1/policies", {
      ...{ name: "access hidden", effect: "deny", actions: "secrets:*" },
      resources: "irn:svc:*:*:secret:*:access_I",
    });
    await inside.api(`/api/v1/roles/${role.id}/policies`, { body: { policy_id: policy.id } });
    const { key } = await keyOf(inside, "access hidden", { role_ids: [role.id] });
    const listed = (await createClient({ url: inside.url, apiKey: key }).secrets.list()).map(
      ({ name }) => name,
    );
    expect([listed.includes("access_I"), listed.includes("access_i")]).toEqual([false, true]);
  },
  async "a key ends at its time, one that lasts goes on"(inside) {
    const short = await keyOf(inside, "access short", { expires_in: "1s" });
    const long = await keyOf(inside, "access long", { expires_in: "1h" });
    const ask = async (key: string) => (await inside.api("/api/v1/events?limit=1", { key })).status;
    await until(async () => (await ask(short.key)) === 401, { about: "the end of a key" });
    expect(await ask(long.key)).toBe(200);
  },
  async "a deleted key is refused within a second"(inside) {
    const { id, key } = await keyOf(inside, "access deleted");
    expect((await inside.api("/api/v1/events?limit=1", { key })).status).toBe(200);
    await inside.api(`/api/v1/apikeys/${id}`, { method: "DELETE" });
    await until(async () => (await inside.api("/api/v1/events?limit=1", { key })).status === 401, {
      about: "the key to be refused",
    });
  },
  async "an environment sees nothing of another"(inside) {
    const { id } = await made(inside, "/api/v1/environments", { name: "access-apart" });
    const { key } = await keyOf(inside, "access apart", { env_id: id });
    const apart = createClient({ url: inside.url, apiKey: key });
    const { sequence } = await apart.emit("access.apart", {});
    expect(sequence).toBe(1);
    expect((await inside.client.events.list({ names: ["access.apart"] })).events).toEqual([]);
    expect((await apart.sql("SELECT count(*) AS n FROM events")).rows).toEqual([{ n: "1" }]);
  },
  async "the audit has who changed what, with its time, and no secret"(inside) {
    await inside.client.secrets.create("ACCESS_AUDITED", "s3cret-of-audit");
    const about = async () =>
      (await inside.rpc("AuditService", "GetAuthAuditTrail", { action: "secrets:manage", limit: 50 })).body
        .events as {
        created_at?: string;
        createdAt?: string;
      }[];
    const found = await until(
      async () => (await about())?.find((event) => JSON.stringify(event).includes("ACCESS_AUDITED")),
      { about: "the line of the audit" },
    );
    expect(JSON.stringify(found)).not.toContain("s3cret-of-audit");
    expect(Math.abs(Date.parse(found.createdAt ?? found.created_at!) - Date.now())).toBeLessThan(60_000);
    expect((await inside.api("/api/v1/audit/verify")).status).toBe(200);
  },
  async "quotas refuse what goes beyond them"(inside) {
    const { id } = await made(inside, "/api/v1/environments", { name: "access-narrow" });
    const { key } = await keyOf(inside, "access narrow", { env_id: id });
    const narrow = createClient({ url: inside.url, apiKey: key });
    await narrow.registerFunction({ id: "held", triggers: [{ event: "held" }] });
    await inside.api(`/api/v1/environments/${id}/quotas`, { method: "PUT", body: { concurrent_runs: 2 } });
    const codes: string[] = [];
    for (let n = 0; n < 3; n++)
      codes.push(
        await narrow.emit("held", {}).then(
          () => "ok",
          ({ code }) => code,
        ),
      );
    expect(codes).toEqual(["ok", "ok", "resource_exhausted"]);
  },
  async "an export has every event, and its end"(inside) {
    const { eventId } = await inside.client.emit("access.exported", { of: "İ" });
    const { rowsOf, end } = await exportOf(inside.url, inside.adminKey, "?include=events");
    expect(rowsOf("events").find(({ id }) => id === eventId)).toMatchObject({ data: { of: "İ" } });
    expect(end.section).toBe("end");
  },
  async "the command line emits, and lists what it emitted"({ url, adminKey, client }) {
    const cli = makeCli({ SVC_SERVER_URL: url, SVC_API_KEY: adminKey });
    try {
      const emitted = await cli.run(["emit", "access.typed", "--data", '{"of":"İ"}']);
      expect(emitted.code ?? 0).toBe(0);
      const { events } = await client.events.list({ names: ["access.typed"] });
      expect(events.map(({ data }) => data)).toEqual([{ of: "İ" }]);
      const listed = await cli.run(["event", "list", "--name", "access.typed"]);
      expect([listed.code ?? 0, listed.out]).toEqual([0, expect.stringContaining(events[0]!.id)]);
    } finally {
      cli.remove();
    }
  },
  async "the overview counts what is there"({ api }) {
    const { status, body } = await api("/api/v1/overview");
    expect([status, body.functions.total ?? body.functions]).toEqual([200, expect.anything()]);
  },
};
