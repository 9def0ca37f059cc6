import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { acting } from "./acting.ts";
import { driven } from "./driven.ts";
import { manageAccess, partIdentity } from "./manage-access.ts";
import { platformSessionOf } from "./visit.ts";
import { notGranted } from "./writes.ts";

describe.each(engines)("what is done for the platform in the dashboard on %s", (engine) => {
  let server: TestServer;
  let session: string;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    session = await platformSessionOf(server);
  }, 300_000);
  afterAll(() => server.stop());

  const api = async (path: string) => (await server.api(`/api/v1/platform/${path}`, { key: session })).body;
  const signedIn = async (key: string) => (await server.api("/api/v1/auth/session", { key })).status;

  test("users, roles and policies of the platform are made, changed and deleted", () =>
    acting(server, engine, { path: "~", session }, (on) =>
      manageAccess(on, { viewer: "platform_viewer", hasVersions: false }, api),
    ));

  test("a user of the platform is parted from a person of a provider", async () => {
    const { id: user, email } = (await server.api("/api/v1/auth/session", { key: session })).body;
    await acting(server, engine, { path: "~", session }, (on) =>
      partIdentity(on, server, { org: "org_platform", user, email }),
    );
  });

  test("a session of the platform is ended", async () => {
    const other = await platformSessionOf(server);
    await acting(server, engine, { path: "~", session }, async (on) => {
      await on.go("access?tab=sessions");
      const all = on.main.getByRole("table", { name: "Sessions of the platform" });
      const row = all.getByRole("row", { name: /root@/ }).filter({ hasNotText: "this one" });
      await on.send({ opens: "End…", within: row.first(), sends: "End the session" });
      await row.waitFor({ state: "detached" });
    });
    expect(await Promise.all([other, session].map(signedIn))).toEqual([401, 200]);
  });

  test("a user of the platform signs in, and makes a tenant and deletes it", async () => {
    await acting(server, engine, { path: "~", session: "" }, async (on) => {
      const form = on.page.locator("form");
      await on.hands.fill(form.getByLabel("Email"), "root@example.test");
      await on.hands.fill(form.getByLabel("Password"), "correct horse battery staple");
      await on.hands.press(form.getByRole("checkbox"));
      await on.press("Sign in", form);
      await on.heading("Tenants");
      await on.send({ opens: "New tenant…", typed: { Name: "Acme" }, sends: "Make" });
      expect(await signedIn(await on.kept())).toBe(200);
      const row = on.main.getByRole("row", { name: /^Acme/ });
      await on.send({
        opens: "Delete…",
        within: row,
        typed: { "Type its name": "Acme" },
        sends: "Delete the tenant",
      });
      await row.waitFor({ state: "detached" });
    });
    expect((await api("tenants")).map(({ id }: { id: string }) => id)).toEqual(["org_default"]);
  });

  test("a secret of the installation is rotated, and what the old one signed stays good for now", async () => {
    const made = "k".repeat(64);
    await acting(server, engine, { path: "~", session }, async (on) => {
      await on.go("cluster");
      const typed = { Secret: { option: "Sessions of the platform's users" }, "New value": made };
      await on.send({ opens: "Rotate a secret…", typed, sends: "Rotate" });
      await on.told("Rotated; 1 node already on it");
      const row = on.page.getByRole("row", { name: /^Sessions of the platform's users 2 / });
      await row.waitFor();
    });
    expect(server.running.domain.keyring.current("platform_jwt_secret").secret).toBe(made);
    expect(await Promise.all([session, await platformSessionOf(server)].map(signedIn))).toEqual([200, 200]);
  });

  test("has sent every write that driven.ts names for this file", () => {
    expect(notGranted(driven["actions-platform"])).toEqual([]);
  });
});
