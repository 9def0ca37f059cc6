import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { projectionCaller } from "../support/projections.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { acting } from "./acting.ts";
import { driven } from "./driven.ts";
import { emit, sessionOf } from "./visit.ts";
import { notGranted } from "./writes.ts";

describe.each(engines)("what is done with functions and projections in the dashboard on %s", (engine) => {
  let server: TestServer;
  let session: string;
  let isAway = true;
  const endpoint = Bun.serve({
    ...{ port: 0, hostname: "127.0.0.1" },
    fetch: () => (isAway ? new Response(null, { status: 503 }) : Response.json({ status: "completed" })),
  });
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pushAllowPrivate: ["127.0.0.0/8"] } });
    session = await sessionOf(server, "developer");
  }, 300_000);
  afterAll(async () => {
    await server.stop();
    endpoint.stop(true);
  });

  const rpc = async (method: string, body: object) => {
    const answer = await server.rpc("SvcService", method, body);
    expect([method, answer.status, answer.body]).toEqual([method, 200, expect.anything()]);
    return answer.body;
  };

  test("a function is paused, activated, rolled back with a reason, and archived", async () => {
    const register = (maxAttempts: number) =>
      rpc("RegisterFunction", {
        id: "rolled",
        triggers: [{ event: "rolled.asked" }],
        retry: { maxAttempts },
      });
    await register(2);
    await register(9);
    await acting(server, engine, { path: "functions/rolled", session }, async (on) => {
      await on.send({ opens: "Pause…", sends: "Pause" });
      await on.heading("Paused");
      await on.send({ opens: "Activate…", sends: "Activate" });
      await on.heading("Active");
      await on.hands.press(on.main.getByRole("link", { name: /^Versions/ }));
      const first = on.main.getByRole("listitem").last();
      await on.hands.press(first.locator("summary"));
      const typed = { Reason: "nine are too many" };
      await on.send({ opens: "Roll back to this…", within: first, typed, sends: "Roll back" });
      await on.told("nine are too many");
      expect((await rpc("GetFunction", { id: "rolled" })).retry.maxAttempts).toBe(2);

      await on.send({ opens: "Archive…", sends: "Archive" });
      await on.heading("Archived");
      expect(await on.page.locator(".page-actions").getByText("Activate…").count()).toBe(0);
    });
    expect(await emit(server, "rolled.asked")).toBe("");
  });

  test("what is held back is let go, and a breaker is closed", async () => {
    const debounce = { periodMs: 600_000, key: "event.data.cart" };
    await rpc("RegisterFunction", { id: "quiet", triggers: [{ event: "quiet.asked" }], debounce });
    for (const cart of ["a/1", "b/2"]) await rpc("Emit", { event: "quiet.asked", data: { cart } });
    const held = async (): Promise<string[]> =>
      (await server.api("/api/v1/debounce/entries?limit=100")).body.entries.map(
        ({ debounce_key }: { debounce_key: string }) => debounce_key,
      );
    expect((await held()).sort()).toEqual(["a/1", "b/2"]);

    const retry = { maxAttempts: 30, initialDelayMs: 1, backoffFactor: 1, maxDelayMs: 1 };
    const endpointUrl = `http://127.0.0.1:${endpoint.port}/pushed`;
    await rpc("RegisterFunction", {
      id: "pushed",
      endpointUrl,
      triggers: [{ event: "pushed.asked" }],
      retry,
    });
    await server.running.tick("push.look");
    const run = await emit(server, "pushed.asked");
    const breakers = async () => (await server.api("/api/v1/circuit-breakers")).body;
    await until(async () => (await breakers())[0]?.state === "open", { about: "the open breaker" });

    await acting(server, engine, { path: "functions/quiet?tab=serving", session }, async (on) => {
      await on.press("Cancel", on.main.getByRole("row", { name: /a\/1/ }));
      await on.told("Its event starts no run");
      await on.main.getByRole("row", { name: /a\/1/ }).waitFor({ state: "detached" });
      expect(await held()).toEqual(["b/2"]);

      await on.go("functions/pushed?tab=serving");
      const row = on.main.getByRole("row", { name: /\/pushed/ });
      await row.getByText("Open").waitFor();
      isAway = false;
      await on.press("Close the breaker", row);
      await on.told("The endpoint is called again");
    });
    await server.running.tick("breakers.look");
    await until(async () => (await rpc("GetRun", { id: run })).status === "RUN_STATUS_COMPLETED", {
      about: "the run of the endpoint that is back",
    });
    expect(await breakers()).toEqual([]);
  });

  test("a projection is paused and goes on; its rebuild begins, and is cancelled", async () => {
    const { registered, status, ok, emit: happen, poll, save } = projectionCaller(server);
    const { name, event } = await registered("carts");
    const { seq } = await happen(event);
    await poll(name);
    await save(name, seq, { carts: 1 });
    await acting(server, engine, { path: `projections/${name}`, session }, async (on) => {
      await on.press("Pause");
      await on.heading("Paused");
      const changes = on.main.getByRole("table", { name: "Changes" });
      await changes
        .getByRole("row", { name: /^Status\s+Paused/ })
        .first()
        .waitFor();
      expect((await status(name)).status).toContain("paused");
      await on.press("Resume");
      await on.heading("Running");
      await on.send({ opens: "Rebuild…", sends: "Rebuild" });
      await on.told(`${name} is rebuilt`);
      expect((await ok("GetRebuildJob", { name })).job.strategy).toBe("side_by_side");
      await on.press("Cancel the rebuild");
      await on.told("Rebuild cancelled");
      await on.main.getByRole("button", { name: "Rebuild…" }).waitFor();
    });
    expect(
      (await ok("GetProjection", { name })).stateValue ?? (await ok("GetProjection", { name })).state,
    ).toEqual({
      carts: 1,
    });
  });

  test("a tail and a topic are held while one reads, and show what came meanwhile", async () => {
    const emitted = async (event: string) => (await rpc("Emit", { event })).eventId as string;
    await acting(server, engine, { path: "events?pattern=held.*", session }, async (on) => {
      const line = (id: string) => on.page.locator(`[data-event="${id}"]`);
      let came = "";
      on.page.on("websocket", (socket) =>
        socket.on("framereceived", ({ payload }) => {
          came += payload;
        }),
      );
      await on.page.reload();
      await line(await emitted("held.one")).waitFor();
      await on.press("Hold");
      const meanwhile = await emitted("held.two");
      await until(async () => came.includes(meanwhile), { about: "the frame of the event" });
      expect(await line(meanwhile).count()).toBe(0);
      await on.press("Go on");
      await line(meanwhile).waitFor();

      const publish = (sku: string) =>
        server.rpc("PubSubService", "Publish", { topic: "held-prices", data: { sku } });
      await publish("a-1");
      await on.go("topics/held-prices");
      await on.told('{"sku":"a-1"}');
      await on.press("Hold");
      await publish("b-2");
      await on.press("Go on");
      await on.told('{"sku":"b-2"}');
      await on.send({ opens: "Publish…", typed: { "Data (JSON)": '{"sku": "c-3"}' }, sends: "Publish" });
      await on.told('{"sku":"c-3"}');
    });
  });

  test("an attribute of runs is deleted, and the enforcement of schemas is set", async () => {
    const sized = { id: "sized", triggers: [{ event: "sized.asked" }] };
    await rpc("RegisterFunction", { ...sized, attributes: [{ name: "size", type: "number" }] });
    // While a function takes it from its events the name stays.
    await rpc("RegisterFunction", sized);
    const modeOf = async () => (await server.api("/api/v1/events/enforcement")).body.mode;
    expect(await modeOf()).toBe("enforce");
    await acting(server, engine, { path: "schemas", session }, async (on) => {
      const typed = { "An event that breaks its schema": { option: "is written and marked" } };
      await on.send({ opens: "Enforcement…", typed, sends: "Set" });
      expect(await modeOf()).toBe("warn");
      await on.go("quotas");
      const row = on.main.getByRole("row", { name: /^size/ });
      await on.send({ opens: "Delete…", within: row, sends: "Delete the attribute" });
      await on.told("The attribute is being deleted");
    });
    await until(
      async () => {
        await server.running.tick("attributes.purge");
        return (await server.api("/api/v1/attributes")).body.attributes.length === 0;
      },
      { about: "the end of the attribute" },
    );
  });

  test("has sent every write that driven.ts names for this file", () => {
    expect(notGranted(driven["actions-functions"])).toEqual([]);
  });
});
