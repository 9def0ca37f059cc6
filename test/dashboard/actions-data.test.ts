import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { acting } from "./acting.ts";
import { driven } from "./driven.ts";
import { sessionOf } from "./visit.ts";
import { notGranted } from "./writes.ts";

describe.each(engines)("what is done with kept data in the dashboard on %s", (engine) => {
  let server: TestServer;
  let session: string;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    session = await sessionOf(server, "developer");
  }, 300_000);
  afterAll(() => server.stop());

  const statusOf = async (path: string) => (await server.api(path)).status;

  test("a bucket is made, its key is put, deleted with what was before, and it goes itself", async () => {
    const bucket = "/api/v1/kv/buckets/carts";
    await acting(server, engine, { path: "kv", session }, async (on) => {
      const typed = { Name: "carts", "Values kept of each key": "3" };
      await on.send({ opens: "New bucket…", typed, sends: "Make" });
      await on.heading("carts");
      expect((await server.api(bucket)).body.history).toBe(3);
      await on.send({ opens: "Put a key…", typed: { Key: "users/ada", Value: "1" }, sends: "Put" });
      await on.page.getByRole("heading", { name: "users/ada" }).waitFor();
      const key = on.main.locator("section", { has: on.page.getByRole("heading", { name: "users/ada" }) });
      await on.send({ opens: "Put…", within: key, typed: { Value: "2" }, sends: "Put" });
      await on.told("users/ada is at revision 2");
      expect(atob((await server.api(`${bucket}/keys/users/ada`)).body.value)).toBe("2");
      await key.locator("dd", { hasText: /^2$/ }).first().waitFor();
      const purging = { "The values before it, too": true } as const;
      await on.send({ opens: "Delete…", within: key, typed: purging, sends: "Delete the key" });
      await on.told("The key is not there");
      expect(await statusOf(`${bucket}/keys/users/ada?revision=1`)).toBe(404);
      const whole = on.page.locator(".page-actions");
      await on.send({ opens: "Delete…", within: whole, sends: "Delete the bucket" });
      await on.heading("Key-value");
    });
    expect(await statusOf(bucket)).toBe(404);
  });

  test("a document is made, edited, rolled back and deleted", async () => {
    const path = "/api/v1/config/till";
    await acting(server, engine, { path: "config", session }, async (on) => {
      const typed = { Name: "till", "Document (JSON)": '{"currency": "EUR"}' };
      await on.send({ opens: "New document…", typed, sends: "Make" });
      await on.heading("till");
      const edited = { "Document (JSON)": '{"currency": "CHF"}' };
      await on.send({ opens: "Edit…", typed: edited, sends: "Save" });
      await on.told("till is at revision 2");
      expect((await server.api(path)).body.data).toEqual({ currency: "CHF" });
      const first = on.main.getByRole("listitem").nth(1);
      await on.hands.press(first.locator("summary"));
      await on.send({ opens: "Roll back to this…", within: first, sends: "Roll back" });
      await on.told("till rolled back");
      expect((await server.api(path)).body).toMatchObject({ revision: 3, data: { currency: "EUR" } });
      await on.main.locator("dd", { hasText: /^3$/ }).waitFor();
      await on.send({ opens: "Delete…", sends: "Delete the document" });
      await on.heading("Config");
    });
    expect(await statusOf(path)).toBe(404);
  });

  test("a secret is made, given another value, renamed and deleted", async () => {
    await acting(server, engine, { path: "secrets", session }, async (on) => {
      const typed = { Name: "TILL_KEY", Value: "first" };
      await on.send({ opens: "New secret…", typed, sends: "Make" });
      await on.heading("TILL_KEY");
      await on.send({ opens: "Set the value…", typed: { Value: "second" }, sends: "Set" });
      await on.told("TILL_KEY is at revision 2");
      const described = { Name: "TILL_TOKEN", Description: "opens the till" };
      await on.send({ opens: "Rename or describe…", typed: described, sends: "Save" });
      await on.heading("TILL_TOKEN");
      const { body } = await server.api("/api/v1/secrets/TILL_TOKEN");
      expect(body).toMatchObject({ revision: 2, description: "opens the till" });
      expect(await statusOf("/api/v1/secrets/TILL_KEY")).toBe(404);
      await on.send({ opens: "Delete…", sends: "Delete the secret" });
      await on.heading("Secrets");
    });
    expect(await statusOf("/api/v1/secrets/TILL_TOKEN")).toBe(404);
  });

  test("an entity is appended to, given a snapshot and deleted with what it holds", async () => {
    const rpc = async (method: string, body: object) =>
      (await server.rpc("EntityStreamService", method, body)).body;
    const opened = { entityId: "cart-1", entityType: "cart", eventName: "cart.opened", data: { sum: 1 } };
    await rpc("AppendEvent", { ...opened, expectedVersion: "0" });
    await acting(server, engine, { path: "streams/cart-1", session }, async (on) => {
      const typed = { Event: "cart.filled", "Data (JSON)": '{"sum": 2}' };
      await on.send({ opens: "Append…", typed, sends: "Append" });
      await on.page.locator('[data-version="2"]').waitFor();
      await on.send({ opens: "Store a snapshot…", sends: "Store" });
      await on.told("State at version 2");
      expect((await rpc("GetSnapshot", { entityId: "cart-1" })).state).toEqual({ sum: 2 });
      const sure = { "Overwrite what its events hold": true, "Type the entity's id": "cart-1" } as const;
      await on.send({ opens: "Delete…", typed: sure, sends: "Delete" });
      await on.heading("Streams");
    });
    expect(
      (await server.rpc("EntityStreamService", "AppendEvent", { ...opened, expectedVersion: "2" })).status,
    ).not.toBe(200);
  });

  test("a schema is registered, and its versions are deleted one after the other", async () => {
    const typed = { Event: "cart.paid", "JSON Schema": '{"type": "object"}' };
    await acting(server, engine, { path: "schemas", session }, async (on) => {
      await on.send({ opens: "Register…", typed, sends: "Register" });
      await on.heading("cart.paid");
      await on.send({ opens: "Register the next version…", sends: "Register" });
      const versions = on.main.getByRole("listitem");
      const newest = versions.filter({ hasText: "Version 2" }).first();
      await newest.waitFor();
      await on.send({ opens: "Delete…", within: newest, sends: "Delete" });
      await on.told("Version 2 deleted");
      await newest.waitFor({ state: "detached" });
      await on.send({ opens: "Delete…", within: versions.first(), sends: "Delete" });
      await on.heading("Schemas");
    });
    expect(await statusOf("/api/v1/events/schemas/cart.paid")).toBe(404);
  });

  test("limits and retention are set", async () => {
    const limited = `/api/v1/environments/${server.env}/quotas`;
    await acting(server, engine, { path: "quotas", session }, async (on) => {
      await on.send({ opens: "Set limits…", typed: { "Runs that are not over": "77" }, sends: "Set" });
      await on.main.getByRole("cell", { name: "77", exact: true }).first().waitFor();
      await on.send({ opens: "Set days…", typed: { Days: "30" }, sends: "Set" });
      await on.told("30 days");
    });
    expect(JSON.stringify((await server.api(limited)).body)).toContain("77");
    expect((await server.api("/api/v1/retention")).body.own_days).toBe(30);
  });

  test("has sent every write that driven.ts names for this file", () => {
    expect(notGranted(driven["actions-data"])).toEqual([]);
  });
});
