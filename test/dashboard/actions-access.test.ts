import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { acting } from "./acting.ts";
import { driven } from "./driven.ts";
import { manageAccess, partIdentity } from "./manage-access.ts";
import { sessionOf } from "./visit.ts";
import { notGranted } from "./writes.ts";

const password = "correct horse battery staple";
describe.each(engines)("what is done about access in the dashboard on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 300_000);
  afterAll(() => server.stop());

  test("users, roles and policies of an organization are made, changed and deleted", async () => {
    const session = await sessionOf(server, "admin");
    const api = async (path: string) => {
      const { body } = await server.api(`/api/v1/${path}`);
      return Array.isArray(body) ? body : body[path];
    };
    await acting(server, engine, { path: "access", session }, (on) =>
      manageAccess(on, { viewer: "viewer", hasVersions: true }, api),
    );
  });

  test("a user is parted from a person of a provider", async () => {
    const session = await sessionOf(server, "admin");
    const { id: user, email } = (await server.api("/api/v1/auth/session", { key: session })).body;
    await acting(server, engine, { path: "access", session }, (on) =>
      partIdentity(on, server, { org: "org_default", user, email }),
    );
  });

  test("a key is made, gets other roles, is rotated and revoked", async () => {
    const session = await sessionOf(server, "admin");
    const rolesOf = async (key: string) => {
      const { status, body } = await server.api("/api/v1/auth/session", { key });
      return status === 200 ? body.roles : status;
    };
    await acting(server, engine, { path: "access?tab=keys", session }, async (on) => {
      const typed = { Name: "deployer", viewer: true, "Ends after": { option: "A day" } } as const;
      await on.send({ opens: "New key…", typed, sends: "Make" });
      const first = await on.kept();
      expect(await rolesOf(first)).toEqual(["role_viewer"]);
      const row = on.main.getByRole("row", { name: /^deployer/ });
      const other = { viewer: true, developer: true } as const;
      await on.send({ opens: "Roles…", within: row, typed: other, sends: "Save" });
      await row.getByText("developer").waitFor();
      expect(await rolesOf(first)).toEqual(["role_developer"]);
      await on.send({ opens: "Rotate…", within: row, sends: "Rotate" });
      const second = await on.kept();
      expect(await Promise.all([first, second].map(rolesOf))).toEqual([401, ["role_developer"]]);
      await on.send({ opens: "Revoke…", within: row, sends: "Revoke the key" });
      await row.waitFor({ state: "detached" });
      expect(await rolesOf(second)).toBe(401);
    });
  });

  test("a user changes the password, which ends the session, and signs in and out", async () => {
    const next = "another horse battery staple";
    const login = async (typed: string) => {
      const body = { email: "admin@example.test", password: typed };
      return (await server.api("/api/v1/auth/login", { key: null, body })).status;
    };
    const session = await sessionOf(server, "admin");
    await acting(server, engine, { path: "access", session }, async (on) => {
      const typed = { "Password of now": password, "New password": next };
      await on.send({ opens: "Change my password…", typed, sends: "Change" });
      const ended = on.page.getByRole("dialog", { name: "Your session has ended" });
      await on.hands.fill(ended.getByLabel("Email"), "admin@example.test");
      await on.hands.fill(ended.getByLabel("Password"), next);
      await on.press("Sign in", ended);
      await ended.waitFor({ state: "detached" });
      await on.press("Sign out", on.page.locator("body"));
      await on.page.getByRole("button", { name: "Sign in" }).waitFor();
    });
    expect(await Promise.all([password, next].map(login))).toEqual([401, 200]);
  });

  test("has sent every write that driven.ts names for this file", () => {
    expect(notGranted(driven["actions-access"])).toEqual([]);
  });
});
