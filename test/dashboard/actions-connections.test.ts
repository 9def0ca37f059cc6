import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { joinGroup } from "../support/group-member.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { acting } from "./acting.ts";
import { driven } from "./driven.ts";
import { makeSource, sendToSource, signed } from "./furnish-data.ts";
import { sessionOf } from "./visit.ts";
import { notGranted } from "./writes.ts";

describe.each(engines)("what is done with connections in the dashboard on %s", (engine) => {
  let server: TestServer;
  let session: string;
  let isAway = true;
  const got: string[] = [];
  const receiver = Bun.serve({
    ...{ port: 0, hostname: "127.0.0.1" },
    async fetch(request) {
      if (isAway) return new Response("the ledger is away", { status: 503 });
      got.push(await request.text());
      return Response.json({ output: { planned: true }, success: true });
    },
  });
  const url = `http://127.0.0.1:${receiver.port}`;
  beforeAll(async () => {
    server = await startTestServer({
      ...{ engine, settings: { pushAllowPrivate: ["127.0.0.0/8"], webhookRetryMs: 60_000 } },
    });
    session = await sessionOf(server, "developer");
  }, 300_000);
  afterAll(async () => {
    await server.stop();
    receiver.stop(true);
  });

  const rpc = async (service: string, method: string, body: object) => {
    const answer = await server.rpc(service, method, body);
    expect([method, answer.status, answer.body]).toEqual([method, 200, expect.anything()]);
    return answer.body;
  };
  const emit = async (event: string): Promise<string> =>
    (await rpc("SvcService", "Emit", { event, data: {} })).eventId;

  test("a group is paused, goes on, is changed; a delivery goes out again and is given up; it is deleted", async () => {
    const group = {
      name: "readers",
      pattern: "events:read.*",
      ackMode: "ACK_MODE_MANUAL",
      redeliverDelayMs: 600_000,
    };
    await rpc("PubSubService", "CreateConsumerGroup", group);
    const found = () => rpc("PubSubService", "GetConsumerGroup", { name: "readers" });
    const member = joinGroup(
      { url: server.url, key: server.adminKey },
      { groupName: "readers", consumerId: "ada" },
    );
    await acting(server, engine, { path: "groups/default/readers", session }, async (on) => {
      await on.told("ada");
      await on.press("Pause");
      await on.heading("Paused");
      expect((await found()).status).toBe("CONSUMER_GROUP_STATUS_PAUSED");
      await on.page.getByRole("img", { name: "Caught up all the time" }).waitFor();
      await emit("other.thing");
      await on.page.getByRole("img", { name: "At most 1, now 1" }).waitFor();
      await on.press("Continue");
      await on.heading("Active");
      const typed = {
        "Redeliveries at most": "7",
        "When its members are full": { option: "Wait for the slowest member" },
      };
      await on.send({ opens: "Change…", typed, sends: "Change" });
      await on.told("7 at most");
      expect(await found()).toMatchObject({ maxRedeliveries: 7, backpressure: "BACKPRESSURE_MODE_BLOCK" });

      const event = await emit("read.this");
      const row = on.main.getByRole("row", { name: new RegExp(event) });
      await row.getByText("ada", { exact: true }).waitFor();
      await on.press("Deliver again", row);
      await on.told("It is delivered again");
      await row
        .getByRole("cell", { name: "2", exact: true })
        .or(row.getByText("waits for its next attempt"))
        .first()
        .waitFor();
      await on.press("Give up", row);
      await on.told("Nothing is held");
      expect((await found()).inflightCount ?? 0).toBe(0);
      await on.send({ opens: "Delete…", sends: "Delete" });
      await on.heading("Consumer groups");
    });
    await member.leave();
    expect((await server.rpc("PubSubService", "GetConsumerGroup", { name: "readers" })).status).toBe(404);
  });

  test("a source gets other secrets and another token, is changed and deleted", async () => {
    const source = await makeSource(server, "till", "the first secret");
    const body = '{"amount": 3}';
    const send = async (secret: string, ingestToken = source.ingestToken) =>
      (await sendToSource(server, { id: source.id, ingestToken }, { body, signature: signed(secret, body) }))
        .status;
    const { verifyConfig } = await rpc("WebhookService", "GetWebhookSource", { id: source.id });
    expect(await send("the first secret")).toBe(200);
    await acting(server, engine, { path: `webhooks-in/${source.id}`, session }, async (on) => {
      await on.send({ opens: "Change…", typed: { Name: "the till" }, sends: "Change" });
      await on.heading("the till");
      const changed = await rpc("WebhookService", "GetWebhookSource", { id: source.id });
      expect(changed.verifyConfig).toEqual(verifyConfig);
      const typed = { "New secret": "the second secret" };
      await on.send({ opens: "Replace the secret…", typed, sends: "Replace" });
      await on.told("Old secret good until");
      expect(await Promise.all(["the first secret", "the second secret"].map((one) => send(one)))).toEqual([
        200, 200,
      ]);
      await on.press("End the old secret");
      await on.told("The old secret has ended");
      expect(await send("the first secret")).toBe(401);
      // Until the page has read the source again, a change of it would be one of an older source.
      await on.main.getByRole("button", { name: "End the old secret" }).waitFor({ state: "detached" });

      await on.send({ opens: "Replace the token…", sends: "Replace" });
      const address = new URL(await on.kept());
      expect(await send("the second secret")).toBe(404);
      expect(await send("the second secret", address.searchParams.get("token")!)).toBe(200);

      const first = on.main.getByRole("link", { name: "till.paid" }).last();
      await on.hands.press(first);
      await on.press("Deliver again", on.page.getByRole("complementary", { name: "Delivery" }));
      await on.told("again");
      await on.send({ opens: "Delete…", sends: "Delete" });
      await on.heading("Webhooks in");
    });
    const { sources = [] } = await rpc("WebhookService", "ListWebhookSources", {});
    expect(sources).toEqual([]);
  });

  test("a delivery that failed here is tried again among the dead letters", async () => {
    const schema = { eventName: "shop.paid", version: 1 };
    const schemaJson = '{"type": "object", "required": ["order"]}';
    await rpc("EventSchemaService", "RegisterSchema", { ...schema, schemaJson });
    const source = await makeSource(server, "shop", "what both know");
    const body = '{"amount": 3}';
    await sendToSource(server, source, { body, signature: signed("what both know", body) });
    await acting(server, engine, { path: "dead-letters?of=sources", session }, async (on) => {
      const row = on.main.getByRole("row", { name: /whd_/ }).first();
      await row.waitFor();
      await rpc("EventSchemaService", "DeleteSchema", schema);
      await on.press("Emit its event", row);
      await on.told("Its event is emitted");
    });
    const { events } = (await server.api("/api/v1/events?name=shop.paid")).body;
    expect(events.map(({ data }: { data: unknown }) => data)).toEqual([{ amount: 3 }]);
  });

  test("an alert rule is changed, tested, silenced and goes; what it found is resolved", async () => {
    isAway = false;
    const lost = {
      name: "lost",
      condition: "dead_letter",
      targets: [{ type: "webhook", url: `${url}/alerts` }],
    };
    await server.running.domain.store.write((session) =>
      session.run(sql`INSERT INTO webhook_dead_letters (environment_id, endpoint_id, event_id, event_name, position,
        attempts, last_error, dead_at) VALUES (${server.env}, 'whe_none', 'evt_none', 'a', 1, 1, 'no', 1)`),
    );
    await rpc("AlertService", "PutAlertRule", lost);
    await acting(server, engine, { path: "alerts", session }, async (on) => {
      const rule = on.main.getByRole("table", { name: "Rules" }).getByRole("row", { name: /lost/ });
      const found = on.main.getByRole("table", { name: "History" }).getByRole("row", { name: /lost/ });
      await rule.waitFor();
      const taken = { Name: "lost", Tells: "email a@example.com" };
      const replaced = on.send({ opens: "New rule…", typed: taken, sends: "Save" });
      await expect(replaced).rejects.toThrow("There is a rule lost");
      await on.page.keyboard.press("Escape");
      await on.send({ opens: "Edit…", within: rule, typed: { "Again after hours": "0" }, sends: "Save" });
      await until(
        async () => (await rpc("AlertService", "GetAlertRule", { name: "lost" })).repeatAfterMs === undefined,
        {
          about: "the rule to change",
        },
      );
      await on.press("Resolve", found);
      await until(
        async () => (await rpc("AlertService", "ListAlerts", { state: "resolved" })).alerts?.length === 1,
        { about: "the alert to be resolved" },
      );
      await on.send({ opens: "Test…", within: rule, sends: "Send" });
      await until(async () => got.some((text) => text.includes("alert.test")), { about: "the test" });
      await on.press("Close", on.page.getByRole("dialog"));
      await on.send({ opens: "Silence…", within: rule, typed: { Hours: "2" }, sends: "Silence" });
      await until(async () => (await rpc("AlertService", "GetAlertRule", { name: "lost" })).silencedUntil, {
        about: "the silence",
      });
      // An emptied number is none: the silence would end.
      await on.press("Silence…", rule);
      const hours = on.page.getByLabel("Hours", { exact: true });
      await hours.press("Control+a");
      await hours.press("Delete");
      await on.press("Silence", on.page.getByRole("dialog"));
      expect(await hours.evaluate((field: HTMLInputElement) => field.validity.valueMissing)).toBe(true);
      await on.page.keyboard.press("Escape");
      expect((await rpc("AlertService", "GetAlertRule", { name: "lost" })).silencedUntil).toBeString();
      await on.send({ opens: "Delete…", within: rule, sends: "Delete the rule" });
      await on.told("No rules");
    });
    await server.running.domain.store.write((session) =>
      session.run(sql`DELETE FROM webhook_dead_letters WHERE endpoint_id = 'whe_none'`),
    );
  });

  test("an endpoint is changed, skips what fails, sends it again, gets another secret and goes", async () => {
    isAway = true;
    const asked = { name: "ledger", url: `${url}/ledger`, pattern: "events:ledger.*" };
    const { id, secret } = await rpc("WebhookEndpointService", "CreateWebhookEndpoint", asked);
    const find = () => rpc("WebhookEndpointService", "GetWebhookEndpoint", { id });
    const events = [await emit("ledger.one"), await emit("ledger.two")] as const;
    await acting(server, engine, { path: `webhooks-out/${id}`, session }, async (on) => {
      for (const [index, event] of events.entries()) {
        await on.main.getByRole("region", { name: "What is wrong" }).getByText(event).waitFor();
        await on.send({ opens: "Skip the event…", sends: "Skip" });
        await until(async () => (await find()).deadLetters === index + 1, { about: "the dead letter" });
      }
      const letter = (event: string) => on.main.getByRole("row", { name: new RegExp(event) });
      await letter(events[1]).waitFor();
      isAway = false;
      await on.press("Send again", letter(events[0]));
      await until(async () => got.some((text) => text.includes("ledger.one")), { about: "the event" });
      await letter(events[0]).waitFor({ state: "detached" });

      await on.send({ opens: "Discard…", within: letter(events[1]), sends: "Discard" });
      await on.told("No dead letters");
      expect((await find()).deadLetters ?? 0).toBe(0);

      await on.send({ opens: "Change…", typed: { Name: "the ledger" }, sends: "Change" });
      await on.heading("the ledger");
      expect(await on.page.title()).toBe(`${id} · Webhooks out · svc`);
      await on.press("Pause");
      await on.heading("Paused");
      await on.press("Continue");
      await on.heading("Active");
      await on.send({ opens: "Replace the secret…", sends: "Replace" });
      const made = await on.kept();
      expect(made).toStartWith("whsec_");
      expect(made).not.toBe(secret);
      await on.told("Signed by both secrets until");
      await on.send({ opens: "Delete…", sends: "Delete" });
      await on.heading("Webhooks out");
    });
    expect((await server.rpc("WebhookEndpointService", "GetWebhookEndpoint", { id })).status).toBe(404);
    expect(got.filter((text) => text.includes("ledger.two"))).toEqual([]);
  });

  test("an endpoint that failed five times says that it is left alone, and is called again by hand", async () => {
    isAway = true;
    const asked = { name: "vault", url: `${url}/vault`, pattern: "events:vault.*" };
    const { id } = await rpc("WebhookEndpointService", "CreateWebhookEndpoint", asked);
    const find = () => rpc("WebhookEndpointService", "GetWebhookEndpoint", { id });
    for (let failed = 0; failed < 5; failed++) {
      const skipEventId = await emit("vault.lost");
      await until(async () => (await find()).failingEventId === skipEventId, { about: "the failed event" });
      await rpc("WebhookEndpointService", "ResumeWebhookEndpoint", { id, skipEventId });
    }
    await emit("vault.kept");
    await acting(server, engine, { path: `webhooks-out/${id}`, session }, async (on) => {
      const row = on.main.getByRole("row", { name: /\/vault/ });
      await row.getByText("Open").waitFor();
      expect(got.filter((text) => text.includes("vault.kept"))).toEqual([]);
      isAway = false;
      await on.press("Close the breaker", row);
      await on.told("It has not failed of late");
    });
    await until(async () => got.some((text) => text.includes("vault.kept")), { about: "the event" });
  });

  test("a message that the bus refused is tried again, another is discarded", async () => {
    const letters = async () =>
      (await server.api("/api/v1/outbox/dead-letter", { environment: server.env })).body.items.length;
    for (const event of ["old.one", "old.two"]) {
      const id = await emit(event);
      await server.running.domain.store.write((write) =>
        write.run(sql`INSERT INTO outbox (environment_id, id, event_id, topic, kind, payload, metadata, created_at,
            attempts, due_at, dead_at, last_error)
          VALUES (${server.env}, ${`ob_${event}`}, ${id}, ${`events:${event}`}, 'mirror', '{}', '{}', 1, 9, 1, 2,
            'the bus is away')`),
      );
    }
    await acting(server, engine, { path: "dead-letters", session }, async (on) => {
      const row = (event: string) => on.main.getByRole("row", { name: new RegExp(event) });
      await on.press("Try again", row("old.one"));
      await row("old.one").waitFor({ state: "detached" });
      expect(await letters()).toBe(1);
      await on.send({ opens: "Discard…", within: row("old.two"), sends: "Discard" });
      await on.told("The bus took everything");
    });
    expect(await letters()).toBe(0);
  });

  test("a tool is invoked, and its agent is removed", async () => {
    isAway = false;
    const tool = {
      name: "plan",
      description: "Plans",
      requiredScopes: [],
      timeoutMs: 5_000,
      inputSchemaJson: "{}",
    };
    await rpc("AgentToolsService", "RegisterTool", { agentName: "planner", callbackUrl: url, tools: [tool] });
    await acting(server, engine, { path: "tools/planner.plan", session }, async (on) => {
      await on.hands.fill(on.main.getByLabel("Input (JSON)"), '{"goal": "ship"}');
      await on.press("Invoke");
      await until(async () => got.some((text) => text.includes("ship")), { about: "the call of the agent" });
      await on.send({ opens: "Remove the agent…", sends: "Remove the agent" });
      await on.heading("Agent tools");
    });
    expect((await rpc("AgentToolsService", "ListTools", {})).tools ?? []).toEqual([]);
  });

  test("has sent every write that driven.ts names for this file", () => {
    expect(notGranted(driven["actions-connections"])).toEqual([]);
  });
});
