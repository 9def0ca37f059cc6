import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { openSocket } from "../support/sockets.ts";
import { holdsWithin } from "../support/within.ts";

const password = "correct horse battery";

interface Listed {
  id: string;
  subject_id: string;
  user_agent?: string;
  is_current: boolean;
}

describe.each(engines)("sign-in sessions on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(() => server.stop());

  const own = "/api/v1/auth/sessions";
  const all = "/api/v1/sessions";
  const newUser = async (name: string, roles = ["viewer"]) => {
    const email = `${name}@example.com`;
    const { body } = await server.api("/api/v1/users", { body: { email, password, roles } });
    return { email, id: body.id as string };
  };
  const login = async (email: string, headers: Record<string, string> = {}): Promise<string> =>
    (await server.api("/api/v1/auth/login", { body: { email, password }, key: null, headers })).body.token;
  const listOf = async (path: string, key?: string): Promise<Listed[]> =>
    (await server.api(path, key === undefined ? {} : { key })).body.sessions;
  const end = (path: string, id: string, key?: string) =>
    server.api(`${path}/${id}`, { method: "DELETE", ...(key !== undefined && { key }) });
  const isOver = (token: string) => async () =>
    (await server.api("/api/v1/auth/session", { key: token })).status === 401;
  const othersKey = async () =>
    (
      await server.running.domain.keys.create({
        orgId: "org_stranger",
        environmentId: "env_default",
        name: "stranger",
        roleIds: ["role_admin"],
      })
    ).key;

  test("one's own are listed newest first, with where they began, and never as a token", async () => {
    const { email, id } = await newUser("lists");
    const first = await login(email, { "user-agent": "Browser/1" });
    const second = await login(email, { "user-agent": `Browser/2 ${"x".repeat(5_000)}` });
    const { body } = await server.api(own, { key: second });
    const found: Listed[] = body.sessions;
    expect(found).toEqual([
      {
        ...{
          id: expect.stringMatching(/^ses_[0-9a-f]{64}$/),
          kind: "user",
          subject_id: id,
          is_current: true,
        },
        ...{ created_at: expect.any(String), expires_at: expect.any(String), address: expect.any(String) },
        user_agent: `Browser/2 ${"x".repeat(290)}`,
      },
      expect.objectContaining({ user_agent: "Browser/1", is_current: false }),
    ]);
    for (const token of [first, second]) {
      expect(JSON.stringify(body)).not.toContain(token);
      const { sid } = JSON.parse(Buffer.from(token.split(".")[1]!, "base64url").toString());
      expect(JSON.stringify(body)).not.toContain(sid);
    }
    expect((await listOf(own, await login((await newUser("alone")).email))).length).toBe(1);
  });

  test("when it was last used is written down", async () => {
    const { email } = await newUser("uses");
    const token = await login(email);
    await listOf(own, token);
    await server.running.tick("sessions.used");
    const [used] = (await server.api(own, { key: token })).body.sessions;
    expect(Math.abs(Date.now() - Date.parse(used.last_used_at))).toBeLessThan(60_000);
  });

  test("a list goes on by its cursor, without what has expired", async () => {
    const { email, id } = await newUser("pages");
    const tokens: string[] = [];
    for (let at = 0; at < 5; at++) tokens.push(await login(email));
    const key = tokens[0]!;
    const seen: string[] = [];
    let cursor = "";
    do {
      const { body } = await server.api(`${own}?limit=2&cursor=${cursor}`, { key });
      expect(body.sessions.length).toBeLessThanOrEqual(2);
      seen.push(...body.sessions.map((one: Listed) => one.id));
      cursor = body.next_cursor ?? "";
    } while (cursor !== "");
    expect(new Set(seen).size).toBe(5);
    expect(seen).toEqual((await listOf(own, key)).map((one) => one.id));
    const ofUser = (await listOf(`${all}?user_id=${id}&limit=100`)).map((one) => one.id);
    expect(ofUser).toEqual(seen);
    await server.running.domain.store.write((session) =>
      session.run(sql`UPDATE sessions SET expires_at = 1 WHERE 'ses_' || id = ${seen[0]!}`),
    );
    expect((await listOf(own, key)).map((one) => one.id)).toEqual(seen.slice(1));
    expect((await end(own, seen[0]!, key)).status).toBe(404);
    expect((await server.api(`${own}?cursor=none`, { key })).status).toBe(400);
  });

  test("a session of one's own is ended, and its sockets close", async () => {
    const { email } = await newUser("ends");
    const stays = await login(email);
    const goes = await login(email);
    const socket = await openSocket(server.url, { key: goes });
    const [ended] = (await listOf(own, stays)).filter((one) => !one.is_current);
    expect((await end(own, ended!.id, stays)).status).toBe(204);
    expect(await isOver(goes)()).toBe(true);
    expect((await socket.whenClosed()).code).toBe(1008);
    expect(await isOver(stays)()).toBe(false);
    expect((await end(own, ended!.id, stays)).status).toBe(404);
    expect((await listOf(own, stays)).map((one) => one.is_current)).toEqual([true]);
  });

  test("all others end at once, and the one that asks stays", async () => {
    const { email } = await newUser("others");
    const tokens = [await login(email), await login(email), await login(email)];
    const answer = await server.api(`${own}/end-others`, { method: "POST", key: tokens[1]! });
    expect(answer).toMatchObject({ status: 200, body: { ended: 2 } });
    expect(await Promise.all(tokens.map((token) => isOver(token)()))).toEqual([true, false, true]);
  });

  test("what is another's looks like nothing", async () => {
    const { email, id } = await newUser("mine");
    const token = await login(email);
    const [mine] = await listOf(own, token);
    const other = await login((await newUser("other")).email);
    const refused = async (path: string, key: string) => {
      const { status, body } = await end(path, mine!.id, key);
      const none = await end(path, "ses_none", key);
      expect(status).toBe(none.status);
      expect(JSON.stringify(body).replaceAll(mine!.id, "ses_none")).toBe(JSON.stringify(none.body));
      return status;
    };
    expect(await refused(own, other)).toBe(404);
    expect(await refused(all, await othersKey())).toBe(404);
    // A viewer sees nobody else's.
    expect(await refused(all, other)).toBe(403);
    expect((await server.api(all, { key: other })).status).toBe(403);
    expect(await listOf(all, await othersKey())).toEqual([]);
    expect(await listOf(`${all}?user_id=${id}`, await othersKey())).toEqual([]);
    const foreign = await server.api(`/api/v1/users/${id}/sessions`, {
      method: "DELETE",
      key: await othersKey(),
    });
    expect(foreign.status).toBe(404);
    expect(await isOver(token)()).toBe(false);
  });

  test("an admin sees and ends those of the org, each with a line of the audit", async () => {
    const { email, id } = await newUser("watched");
    const tokens = [await login(email), await login(email), await login(email)];
    const [first] = (await listOf(`${all}?user_id=${id}`)).filter((one) => one.subject_id === id);
    expect((await end(all, first!.id)).status).toBe(204);
    expect(await isOver(tokens[2]!)()).toBe(true);
    const rest = await server.api(`/api/v1/users/${id}/sessions`, { method: "DELETE" });
    expect(rest).toMatchObject({ status: 200, body: { ended: 2 } });
    expect(await listOf(`${all}?user_id=${id}`)).toEqual([]);
    expect(await Promise.all(tokens.map((token) => isOver(token)()))).toEqual([true, true, true]);
    const back = await login(email);
    const [current] = await listOf(own, back);
    expect((await end(own, current!.id, back)).status).toBe(204);
    await server.running.tick("audit.flush");
    const { body } = await server.rpc("AuditService", "GetAuthAuditTrail", { limit: 100 });
    const told = body.events.map(({ payload }: { payload: { operation: string } }) => payload.operation);
    expect(told).toEqual(expect.arrayContaining(["sessions.end", "users.endSessions", "auth.endSession"]));
  });

  test("a session of a key is the key's own, and listed for an admin", async () => {
    const { body: key } = await server.api("/api/v1/apikeys", {
      body: { name: "desk", role_ids: ["role_viewer"] },
    });
    const { token } = (await server.api("/api/v1/auth/desktop-session", { method: "POST", key: key.key }))
      .body;
    for (const credential of [token, key.key])
      expect((await listOf(own, credential)).map((one) => one.subject_id)).toEqual([key.id]);
    expect((await listOf(`${all}?user_id=${key.id}`)).length).toBe(1);
    const ended = await server.api(`${own}/end-others`, { method: "POST", key: key.key });
    expect(ended.body).toEqual({ ended: 1 });
    expect(await isOver(token)()).toBe(true);
  });

  test("a policy keeps the sessions of a user from an admin", async () => {
    const { email, id } = await newUser("hidden");
    const token = await login(email);
    const { body: role } = await server.api("/api/v1/roles", { body: { name: "partial", base: "admin" } });
    const { body: policy } = await server.api("/api/v1/policies", {
      body: {
        ...{ name: "not this one", effect: "deny" },
        ...{ actions: "users:*", resources: `irn:svc:*:*:user:*:${id}` },
      },
    });
    await server.api(`/api/v1/roles/${role.id}/policies`, { body: { policy_id: policy.id } });
    const { key } = await server.running.domain.keys.create({
      ...{ orgId: "org_default", environmentId: "env_default", name: "partial", roleIds: [role.id] },
    });
    await holdsWithin(
      2_000,
      async () => (await listOf(`${all}?limit=200`, key)).every((one) => one.subject_id !== id),
      "the policy",
    );
    const [mine] = await listOf(own, token);
    expect((await end(all, mine!.id, key)).status).toBe(403);
    expect((await server.api(`${all}?user_id=${id}`, { key })).status).toBe(403);
    expect(await isOver(token)()).toBe(false);
  });

  test("those of the platform's users are the platform's", async () => {
    const root = { email: "root@example.com", password };
    await server.api("/api/v1/platform/bootstrap", { body: { ...root, name: "Root" } });
    const logIn = async (): Promise<string> =>
      (await server.api("/api/v1/platform/auth/login", { body: root, key: null })).body.token;
    const [stays, goes] = [await logIn(), await logIn()];
    const platform = "/api/v1/platform/sessions";
    const found = await listOf(platform, stays);
    expect(found.map((one) => one.is_current).sort()).toEqual([false, true]);
    expect((await listOf(own, stays)).length).toBe(2);
    expect((await server.api(platform)).status).toBe(403);
    const ended = found.find((one) => !one.is_current)!;
    expect((await end(all, ended.id)).status).toBe(404);
    expect((await end(platform, ended.id, stays)).status).toBe(204);
    expect(await isOver(goes)()).toBe(true);
    const lines = await server.api("/api/v1/platform/audit?event_type=platform.session.ended", {
      key: stays,
    });
    expect(lines.body.events).toMatchObject([{ payload: { session_id: ended.id } }]);
    const [tenants] = await listOf(`${all}?limit=1`);
    expect((await end(platform, tenants!.id, stays)).status).toBe(404);
  });
});
