import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { inChrome } from "../support/chrome.ts";
import { startProvider, type TestProvider } from "../support/oidc.ts";
import { addIssuer, startOrgs } from "../support/oidc-orgs.ts";
import { engines, type TestServer } from "../support/server.ts";
import { driven } from "./driven.ts";
import { visit } from "./visit.ts";
import { notGranted } from "./writes.ts";

const login = { email: "present@first.example", password: "correct horse battery staple" };

/** Types who it is at the provider's own pages, and consents. */
async function atProvider(page: Page, sub: string): Promise<void> {
  await page.locator("input[name=login]").fill(sub);
  await page.locator("input[name=password]").fill("any");
  await page.locator("button[type=submit]").click();
  await page.getByRole("button", { name: "Continue" }).click();
}

// A server of its own: it may call loopback.
describe.each(engines)("the dashboard's sign-in by a provider on %s", (engine) => {
  let server: TestServer;
  let provider: TestProvider;
  beforeAll(async () => {
    const orgs = await startOrgs({ engine });
    server = orgs.server;
    provider = await startProvider({
      ada: { email: "ada@first.example", groups: ["eng"] },
      eve: { email: "eve@first.example" },
      present: { email: login.email, groups: ["eng"] },
    });
    const roles = [{ value: "eng", role: "admin" }];
    await addIssuer(server, provider, { key: orgs.first.key, roles, more: { name: "Example" } });
    await server.api("/api/v1/users", { body: { ...login, roles: ["viewer"] } });
  }, 300_000);
  afterAll(async () => {
    await server?.stop();
    await provider?.stop();
  });

  test(
    "somebody signs in by its button and comes back to the page that was asked for",
    () =>
      inChrome(async (browser) => {
        const { page, complaints } = await visit(browser, server, { path: "access?tab=issuers" });
        await page.getByRole("link", { name: "Sign in with Example" }).click();
        await atProvider(page, "ada");
        await page.getByRole("heading", { level: 1, name: "Access" }).waitFor();
        expect(new URL(page.url()).search).toBe("?tab=issuers");
        await page.getByRole("row", { name: /^Example/ }).waitFor();
        expect(complaints).toEqual([]);
        await page.context().close();
      }),
    120_000,
  );

  test(
    "a user who is there joins a sign-in, and is the same person by it",
    () =>
      inChrome(async (browser) => {
        const session = (await server.api("/api/v1/auth/login", { key: null, body: login })).body.token;
        const { page } = await visit(browser, server, { path: "access", session });
        await page.getByRole("button", { name: "Join a sign-in" }).click();
        await page.getByRole("dialog").getByRole("button", { name: "Go to the provider" }).click();
        await atProvider(page, "present");
        await page.getByRole("heading", { level: 1, name: "Access" }).waitFor();
        await page.context().clearCookies({ name: "svc_dashboard_token" });
        await page.goto(`${server.url}/dashboard/`);
        await page.getByRole("link", { name: "Sign in with Example" }).click();
        await page.getByRole("navigation", { name: "Pages" }).waitFor();
        const cookies = await page.context().cookies();
        const token = cookies.find(({ name }) => name === "svc_dashboard_token")!.value;
        expect((await self(token)).email).toBe(login.email);
        await page.context().close();
      }),
    120_000,
  );

  test(
    "who is refused reads why on the sign-in page, once",
    () =>
      inChrome(async (browser) => {
        const { page, complaints } = await visit(browser, server, { path: "access" });
        await page.getByRole("link", { name: "Sign in with Example" }).click();
        await atProvider(page, "eve");
        const said = page.getByRole("alert").getByText("No role is mapped to you here.");
        await said.waitFor();
        expect(new URL(page.url()).search).toBe("");
        await page.reload();
        await page.getByRole("link", { name: "Sign in with Example" }).waitFor();
        expect(await said.count()).toBe(0);
        expect(complaints).toEqual([]);
        await page.context().close();
      }),
    120_000,
  );

  const self = async (key: string) => (await server.api("/api/v1/auth/session", { key })).body;

  test("what its pages write was granted", () => {
    expect(notGranted(driven["sign-in"])).toEqual([]);
  });
});
