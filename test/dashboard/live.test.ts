import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Locator, Page } from "playwright-core";
import { inChrome } from "../support/chrome.ts";
import { joinGroup } from "../support/group-member.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { holdsWithin } from "../support/within.ts";
import { makeSource, sendToSource, signed } from "./furnish-data.ts";
import { emit, functionWithWorker, scrolledThrough, sessionOf, visit } from "./visit.ts";

/** A frame is on its way for a fifth of a second at most, and a page reads at most once a second. */
const seenMs = 1_500;

describe.each(engines)("pages that move by their own frames, on %s", (engine) => {
  let server: TestServer;
  let session: string;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    session = await sessionOf(server, "admin");
  });
  afterAll(() => server.stop());

  const seen = (what: Locator, about: string) => holdsWithin(seenMs, () => what.isVisible(), about);
  const rpc = async (service: string, method: string, body: object) => {
    const answer = await server.rpc(service, method, body);
    expect([method, answer.status]).toEqual([method, 200]);
    return answer.body;
  };

  test("a group appears, its member joins, and what it holds comes and goes", async () => {
    await inChrome(async (browser) => {
      const { page, complaints } = await visit(browser, server, { path: "groups", session });
      await page.getByText("No consumer groups").waitFor();
      await page.getByText("Live", { exact: true }).waitFor();
      const group = { name: "till", pattern: "events:paid.*", ackMode: "ACK_MODE_MANUAL" };
      await rpc("PubSubService", "CreateConsumerGroup", group);
      const link = page.getByRole("link", { name: "till" });
      await seen(link, "the group in the list");
      await link.click();
      await page.getByText("None is connected").waitFor();
      const { url, adminKey: key } = server;
      const member = joinGroup({ url, key }, { groupName: "till", consumerId: "till-one" });
      await seen(page.getByText("till-one").first(), "the member");
      const { eventId } = await rpc("SvcService", "Emit", { event: "paid.now", data: {} });
      await seen(page.getByText(eventId), "the delivery");
      await rpc("PubSubService", "AckEvent", { groupName: "till", eventId, ackType: "ACK_TYPE_ACK" });
      await seen(page.getByText("Nothing is held"), "the end of the delivery");
      await member.leave();
      await seen(page.getByText("None is connected"), "the end of the member");
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  });

  test("what a source refused and what it took appear among its deliveries", async () => {
    const source = await makeSource(server, "shop", "the secret of the shop", "shop");
    await inChrome(async (browser) => {
      const path = `webhooks-in/${source.id}`;
      const { page, complaints } = await visit(browser, server, { path, session });
      await page.getByRole("heading", { name: "shop" }).waitFor();
      await page.getByText("Live", { exact: true }).waitFor();
      const body = '{"order": 1}';
      const table = page.getByRole("main").getByRole("table");
      await sendToSource(server, source, { body, signature: "bad" });
      await seen(table.getByText("Rejected").first(), "the refused request");
      await sendToSource(server, source, { body, signature: signed("the secret of the shop", body) });
      await seen(table.getByText("Accepted").first(), "the accepted request");
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  });

  test("an endpoint and a schema appear in their lists", async () => {
    await inChrome(async (browser) => {
      const { page: endpoints } = await visit(browser, server, { path: "webhooks-out", session });
      await endpoints.getByText("Live", { exact: true }).waitFor();
      const endpoint = { name: "books", url: "http://127.0.0.1:9/", pattern: "events:books.*" };
      await rpc("WebhookEndpointService", "CreateWebhookEndpoint", endpoint);
      await seen(endpoints.getByRole("link", { name: "books" }), "the endpoint");
      const { page: schemas } = await visit(browser, server, { path: "schemas", session });
      await schemas.getByText("Live", { exact: true }).waitFor();
      const schema = { eventName: "ledger.closed", version: 1, schemaJson: '{"type": "object"}' };
      await rpc("EventSchemaService", "RegisterSchema", schema);
      await seen(schemas.getByRole("link", { name: "ledger.closed" }), "the schema");
      for (const page of [endpoints, schemas]) await page.context().close();
    });
  });

  test("a page of runs that comes late takes back nothing that frames have told since", async () => {
    const worker = await functionWithWorker(server, "late", "late.asked");
    await inChrome(async (browser) => {
      const held: (() => void)[] = [];
      let isHolding = true;
      let heard = "";
      const holdPages = (page: Page) => {
        page.on("websocket", (socket) => {
          socket.on("framereceived", ({ payload }) => {
            heard += payload;
          });
        });
        return page.route("**/svc.v1.SvcService/ListRuns", async (route) => {
          const response = await route.fetch();
          if (isHolding) await new Promise<void>((release) => held.push(release));
          await route.fulfill({ response });
        });
      };
      const asked = (about: string) => until(() => held.length > 0, { about });
      const letThrough = () => {
        isHolding = false;
        for (const release of held.splice(0)) release();
      };
      const path = "runs?function=late";
      const { page, complaints } = await visit(browser, server, { path, session, before: holdPages });
      await asked("the first page to be asked for");
      await until(() => heard.includes('"status":"ok"'), { about: "the subscription" });
      const first = await emit(server, "late.asked");
      const job = await worker.job();
      await until(() => heard.includes(`system.run.${first}.updated`), { about: "the frames of the run" });
      letThrough();
      const row = page.locator(`[data-run="${first}"]`);
      await seen(row.getByText("Running"), "the run that came while the first page was on its way");

      isHolding = true;
      await page.getByRole("button", { name: "Read again" }).click();
      await asked("the newest page to be asked for");
      const second = await emit(server, "late.asked");
      for (const done of [job, await worker.job()]) await worker.complete(done);
      for (const id of [first, second])
        await seen(page.locator(`[data-run="${id}"]`).getByText("Completed"), "the end of a run");
      letThrough();
      // What is told after the page came is drawn after it.
      await emit(server, "late.asked");
      await page.getByText("3 runs · newest first").waitFor();
      expect(await page.locator("[data-run]").getByText("Completed").count()).toBe(2);
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  });

  test("a run whose end is told before its beginning is shown as ended", async () => {
    const worker = await functionWithWorker(server, "swift", "swift.asked");
    await inChrome(async (browser) => {
      const late: (() => void)[] = [];
      let ends = 0;
      let reads = 0;
      const holdCreated = (page: Page) => {
        page.on("requestfinished", (request) => {
          if (request.url().endsWith("/ListRuns")) reads++;
        });
        return page.routeWebSocket(/\/ws/, (socket) => {
          socket.connectToServer().onMessage((message) => {
            if (/"system\.run\.[^"]*\.created"/.test(String(message))) {
              late.push(() => socket.send(message));
              return;
            }
            if (/"system\.run\.[^"]*\.completed"/.test(String(message))) ends++;
            socket.send(message);
          });
        });
      };
      const path = "runs?function=swift";
      const { page, complaints } = await visit(browser, server, { path, session, before: holdCreated });
      await until(() => reads === 2, { about: "the first page, and the one that the subscription asks for" });
      const id = await emit(server, "swift.asked");
      await worker.complete(await worker.job());
      await until(() => ends > 0 && late.length > 0, { about: "the frames of both ends" });
      for (const release of late) release();
      await seen(page.locator(`[data-run="${id}"]`).getByText("Completed"), "the run as it is");
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  });

  /** More than a page of the list has. */
  const many = 300;
  const emitMany = async (event: string): Promise<string[]> => {
    const ids: string[] = [];
    const events = Array.from({ length: 100 }, () => ({ event, data: {} }));
    while (ids.length < many) {
      const { results } = await rpc("SvcService", "TriggerBatch", { events });
      for (const { runIds } of results) ids.push(runIds[0]);
    }
    return ids;
  };

  test("runs that a page has counted are not counted again when they are told of late", async () => {
    await functionWithWorker(server, "tardy", "tardy.asked");
    await inChrome(async (browser) => {
      const late: (() => void)[] = [];
      let isHolding = true;
      const holdCreated = (page: Page) =>
        page.routeWebSocket(/\/ws/, (socket) => {
          socket.connectToServer().onMessage((message) => {
            if (isHolding && /"system\.run\.[^"]*\.created"/.test(String(message)))
              late.push(() => socket.send(message));
            else socket.send(message);
          });
        });
      const path = "runs?function=tardy";
      const { page, complaints } = await visit(browser, server, { path, session, before: holdCreated });
      await page.getByText("Live", { exact: true }).waitFor();
      // Not before the subscription is there.
      await until(
        async () => {
          await emit(server, "tardy.asked");
          return late.length > 0;
        },
        { about: "a frame of a run" },
      );
      await emitMany("tardy.asked");
      const { totalCount } = await rpc("SvcService", "ListRuns", { functionId: "tardy" });
      await until(() => late.length >= many, { about: "the frames of the runs" });
      await page.getByRole("button", { name: "Read again" }).click();
      await page.getByText(`${totalCount} runs · newest first`).waitFor();
      isHolding = false;
      for (const release of late) release();
      // Drawn behind all that was told before it.
      const last = await emit(server, "tardy.asked");
      await page.locator(`[data-run="${last}"]`).waitFor();
      expect(await page.getByText(`${totalCount + 1} runs · newest first`).isVisible()).toBe(true);
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  });

  test("runs from between the first page and the subscription are read where they are more than a page", async () => {
    await functionWithWorker(server, "between", "between.asked");
    await inChrome(async (browser) => {
      let asked: (() => void) | undefined;
      const holdSubscription = (page: Page) =>
        page.routeWebSocket(/\/ws/, (socket) => {
          const upstream = socket.connectToServer();
          socket.onMessage((message) => {
            if (asked === undefined && String(message).includes("system.run.*.*"))
              asked = () => upstream.send(message);
            else upstream.send(message);
          });
        });
      const path = "runs?function=between";
      const { page, complaints } = await visit(browser, server, { path, session, before: holdSubscription });
      await page.getByText("0 runs").waitFor();
      await until(() => asked !== undefined, { about: "the page to subscribe" });
      const ids = await emitMany("between.asked");
      asked?.();
      await page.getByText(`${many} runs · newest first`).waitFor();
      expect(await scrolledThrough(page)).toEqual(ids.toSorted().reverse());
      expect(complaints).toEqual([]);
      await page.context().close();
    });
  });

  test("a refusal that comes late says nothing of the filter that is asked by then", async () => {
    await inChrome(async (browser) => {
      const late: (() => void)[] = [];
      const holdRefusals = (page: Page) =>
        page.routeWebSocket(/\/ws/, (socket) => {
          socket.connectToServer().onMessage((message) => {
            if (String(message).includes("Unknown variable")) late.push(() => socket.send(message));
            else socket.send(message);
          });
        });
      const path = "events?pattern=late.*&filter=nothing";
      const { page } = await visit(browser, server, { path, session, before: holdRefusals });
      await until(() => late.length > 0, { about: "the server to refuse the filter" });
      await page.evaluate(() => {
        history.pushState(null, "", location.href.replace("filter=nothing", "filter=data.by%20%3D%3D%201"));
        dispatchEvent(new PopStateEvent("popstate"));
      });
      const field = page.getByLabel("Filter in CEL");
      await until(async () => (await field.inputValue()) === "data.by == 1", {
        about: "the page to show the other filter",
      });
      for (const release of late) release();
      await until(
        async () => {
          await rpc("SvcService", "Emit", { event: "late.one", data: { by: 1 } });
          return page.getByText("late.one").first().isVisible();
        },
        { about: "an event that the other filter lets through" },
      );
      expect(await page.getByText("Unknown variable").count()).toBe(0);
      await page.context().close();
    });
  });
});
