import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { payloadLevelsMax } from "../../src/kit/payload-json.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { openSocket } from "../support/sockets.ts";

/** Failing to write so many levels takes the runtime 14 s. */
const tooDeep = 50_000;
const heldMsMax = 2_000;

describe.each(engines)("JSON of many levels on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(() => server.stop());

  async function send(path: string, body: string, gzip = false) {
    const begun = performance.now();
    const answer = await fetch(`${server.url}${path}`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${server.adminKey}`,
        "content-type": "application/json",
        ...(gzip && { "content-encoding": "gzip" }),
      },
      body: gzip ? Bun.gzipSync(body) : body,
    });
    return { status: answer.status, text: await answer.text(), ms: performance.now() - begun };
  }
  const shapes = [
    (depth: number) => "[".repeat(depth) + "]".repeat(depth),
    (depth: number) => `${'{"a":'.repeat(depth)}1${"}".repeat(depth)}`,
  ];
  const ways = [
    ["/svc.v1.SvcService/Emit", (deep: string) => `{"event":"a.b","data":{"deep":${deep}}}`],
    ["/svc.v1.SvcService/Emit", (deep: string) => `{"event":"a.b","data":{},"metadata":{"deep":${deep}}}`],
    ["/svc.v1.PubSubService/Publish", (deep: string) => `{"topic":"a.b","data":{"deep":${deep}}}`],
    ["/svc.v1.SvcService/GetRun", (deep: string) => `{"id":${deep}}`],
    ["/api/v1/policies", (deep: string) => `{"name":${deep}}`],
  ] as const;

  test("is refused in a moment, whatever it is for", async () => {
    for (const shape of shapes)
      for (const [path, body] of ways)
        for (const gzip of [false, true]) {
          const { status, text, ms } = await send(path, body(shape(tooDeep)), gzip);
          expect([path, status]).toEqual([path, 400]);
          expect(text).toContain(`nested deeper than ${payloadLevelsMax} levels`);
          expect(ms).toBeLessThan(heldMsMax);
        }
  }, 120_000);

  test("is taken up to what anybody may mean", async () => {
    for (const shape of shapes) {
      const { status, text } = await send(
        "/svc.v1.SvcService/Emit",
        ways[0][1](shape(payloadLevelsMax - 10)),
      );
      expect([status, text]).toEqual([200, expect.any(String)]);
    }
  }, 120_000);

  test("in a frame of a socket ends nothing", async () => {
    const socket = await openSocket(server.url, { key: server.adminKey });
    for (const shape of shapes) {
      const begun = performance.now();
      socket.sendText(
        `{"type":"subscribe","subscription":{"pattern":"a.b","options":{"deep":${shape(tooDeep)}}}}`,
      );
      await socket.wait("subscription_result", socket.of("subscription_result").length + 1);
      expect((await socket.subscribe("a.>")).status).toBe("ok");
      expect(performance.now() - begun).toBeLessThan(heldMsMax);
    }
    socket.close();
  }, 120_000);
});
